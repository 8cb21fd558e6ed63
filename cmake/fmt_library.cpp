// fmt, compiled into the portable build: Debian has no archive of it. Its header-only form would be inlined wherever a
// kernel may throw, and take minutes for one file. Below are the templates of it that are asked for.
#include <fmt/format-inl.h>

template fmt::detail::thousands_sep_result<char> fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref);
template std::locale fmt::detail::locale_ref::get<std::locale>() const;
template char fmt::detail::decimal_point_impl(fmt::detail::locale_ref);
