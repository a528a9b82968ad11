// Rows to a Prometheus remote-write request, fast: called by `_kernel.pyx`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "index.hpp"

namespace ccpipe {

// The samples of a payload, gathered by series and field and ordered by time.
class Samples {
public:
    // Of series and fields: numbers of a table, not bytes from outside, so any mixing will do.
    Pairs pairs{Seed{0x9E3779B97F4A7C15u, 0}};

    void add(int32_t series, int32_t field, int64_t milliseconds, double value) {
        samples_.push_back({pairs.intern({series, field}), milliseconds, value});
    }

    // Order by series, then by time; of two samples of one time the last counts.
    void order() {
        auto before = [](const Sample& a, const Sample& b) {
            return a.pair != b.pair ? a.pair < b.pair : a.time < b.time;
        };
        if (!std::is_sorted(samples_.begin(), samples_.end(), before))
            std::stable_sort(samples_.begin(), samples_.end(), before);
    }

    // Write one TimeSeries (prompb/types.proto) for the pair whose samples come next.
    void write(const char* labels, size_t size, std::string& out) {
        body_.clear();
        for (int32_t pair = samples_[next_].pair;
             next_ < samples_.size() && samples_[next_].pair == pair; ++next_) {
            const Sample& sample = samples_[next_];
            bool again = next_ + 1 < samples_.size() && samples_[next_ + 1].pair == pair &&
                         samples_[next_ + 1].time == sample.time;
            if (again) continue;
            char bytes[32] = {0x12, 0, 0x09};
            std::memcpy(bytes + 3, &sample.value, 8);  // doubles are little-endian here and there
            bytes[11] = 0x10;
            char* end = varint(bytes + 12, static_cast<uint64_t>(sample.time));
            bytes[1] = static_cast<char>(end - bytes - 2);
            body_.append(bytes, end - bytes);
        }
        char head[16] = {0x0A};
        char* end = varint(head + 1, size + body_.size());
        out.append(head, end - head).append(labels, size).append(body_);
    }

private:
    struct Sample {
        int32_t pair;
        int64_t time;
        double value;
    };
    std::vector<Sample> samples_;
    std::string body_;
    size_t next_ = 0;

    static char* varint(char* to, uint64_t value) {
        for (; value >= 0x80; value >>= 7) *to++ = static_cast<char>(value | 0x80);
        *to++ = static_cast<char>(value);
        return to;
    }
};

}  // namespace ccpipe
