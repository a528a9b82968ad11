// Rows to a Prometheus remote-write request, fast: called by `_kernel.pyx`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace ccpipe {

// The samples of a payload, gathered by series and field and ordered by time.
class Samples {
public:
    struct Pair {
        int32_t series, field;
    };
    std::vector<Pair> pairs;  // in the order they are met

    void add(int32_t series, int32_t field, int64_t milliseconds, double value) {
        if (2 * (pairs.size() + 1) > slots_.size()) grow();
        int32_t& slot = slots_[place(series, field)];
        if (slot < 0) {
            slot = static_cast<int32_t>(pairs.size());
            pairs.push_back({series, field});
        }
        samples_.push_back({slot, milliseconds, value});
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
    std::vector<int32_t> slots_ = std::vector<int32_t>(64, -1);
    std::string body_;
    size_t next_ = 0;

    size_t place(int32_t series, int32_t field) const {
        // Numbers of a table, not bytes from outside: any mixing will do.
        uint64_t key = static_cast<uint64_t>(series) << 20 ^ static_cast<uint64_t>(field);
        size_t mask = slots_.size() - 1;
        for (size_t i = (key * 0x9E3779B97F4A7C15u) >> 32;; ++i) {
            int32_t slot = slots_[i & mask];
            if (slot < 0 || (pairs[slot].series == series && pairs[slot].field == field))
                return i & mask;
        }
    }

    void grow() {
        slots_.assign(2 * slots_.size(), -1);
        for (size_t i = 0; i < pairs.size(); ++i)
            slots_[place(pairs[i].series, pairs[i].field)] = static_cast<int32_t>(i);
    }

    static char* varint(char* to, uint64_t value) {
        for (; value >= 0x80; value >>= 7) *to++ = static_cast<char>(value | 0x80);
        *to++ = static_cast<char>(value);
        return to;
    }
};

}  // namespace ccpipe
