// The parts of a series: its measurement and tags.
#pragma once

#include <cstddef>
#include <cstring>

namespace ccpipe {

// Call `name` and then `tag` for each tag of a canonical encoding; false, before anything is
// called, where that has escapes.
template <class Name, class Tag>
bool take_apart(const char* p, size_t size, Name name, Tag tag) {
    if (std::memchr(p, '\\', size)) return false;
    const char* end = p + size;
    auto until = [end](const char* from, char wanted) {
        auto found = static_cast<const char*>(std::memchr(from, wanted, end - from));
        return found ? found : end;
    };
    const char* stop = until(p, ',');
    name(p, stop - p);
    while (stop < end) {
        const char* key = stop + 1;
        const char* equals = until(key, '=');  // each tag has one
        const char* value = equals + (equals < end);
        stop = until(value, ',');
        tag(key, equals - key, value, stop - value);
    }
    return true;
}

}  // namespace ccpipe
