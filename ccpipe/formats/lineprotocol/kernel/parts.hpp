// The parts of series: measurement and tags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ccpipe {

// Texts one after another, as Arrow has them: an empty one is null, as no name or tag is empty.
struct Texts {
    std::string valid, bytes;
    std::vector<int32_t> offsets{0};

    void end() {
        size_t row = offsets.size() - 1;
        if (row % 8 == 0) valid.push_back(0);
        if (bytes.size() > static_cast<size_t>(offsets.back())) valid.back() |= 1 << row % 8;
        offsets.push_back(static_cast<int32_t>(bytes.size()));
    }
};

// Series as columns, with a row for each.
class SeriesTexts {
public:
    explicit SeriesTexts(std::vector<std::string> tags)
        : columns(1 + tags.size()), tags_(std::move(tags)) {}

    std::vector<Texts> columns;    // the measurement, then each of the tags
    Texts keys, values;            // of all other tags
    std::vector<int32_t> ends{0};  // of each row's other tags

    // Add a series by its canonical encoding; false, before anything is added, where that has
    // escapes.
    bool add(const char* p, size_t size) {
        if (std::memchr(p, '\\', size)) return false;
        const char* end = p + size;
        auto until = [end](const char* from, char wanted) {  // mostly a few bytes further
            while (from < end && *from != wanted) ++from;
            return from;
        };
        const char* stop = until(p, ',');
        add_name({p, static_cast<size_t>(stop - p)});
        while (stop < end) {
            const char* key = stop + 1;
            const char* equals = until(key, '=');  // each tag has one
            const char* value = equals + (equals < end);
            stop = until(value, ',');
            add_tag({key, static_cast<size_t>(equals - key)},
                    {value, static_cast<size_t>(stop - value)});
        }
        end_row();
        return true;
    }

    void add_name(std::string_view name) { columns[0].bytes.append(name); }

    void add_tag(std::string_view key, std::string_view value) {
        for (size_t place = 0; place < tags_.size(); ++place)
            if (tags_[place] == key) {
                columns[place + 1].bytes.append(value);
                return;
            }
        keys.bytes.append(key);
        keys.end();
        values.bytes.append(value);
        values.end();
    }

    void end_row() {
        for (Texts& column : columns) column.end();
        ends.push_back(static_cast<int32_t>(keys.offsets.size() - 1));
    }

private:
    std::vector<std::string> tags_;
};

}  // namespace ccpipe
