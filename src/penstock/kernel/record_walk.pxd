# The C types of `record_walk.py`, for Cython. Interpreted, that file runs without this one.
#
# None of the functions that are `noexcept` can raise anything: they only read bytes whose index was checked, and count.
# `inline` matters: passing `data` to a function that is not inlined costs more than reading a number does.

cimport cython

cdef long long CUT_OFF, MALFORMED, WRONG_OFFSET, NO_KEY, WRONG_TIMESTAMP, TRAILING_BYTES
cdef long long REFUSED, NO_TIMESTAMP, TIMESTAMP_MAX, TIMESTAMP_MIN
cdef long long ABSENT, WIDTH_32, WIDTH_64, PAUSE_BYTES

@cython.locals(
    end="long long", position="long long", pause_at="long long", largest="long long", refused=bint, index="long long",
    width="long long", size="long long", limit="long long", kind="long long", detail="long long",
    timestamp_at="long long", timestamp_width="long long", offset_at="long long", offset_width="long long",
    key_at="long long", key_width="long long", key_size="long long",
    timestamp_delta="long long", offset_delta="long long", timestamp="long long",
)
cpdef long long walk(
    const unsigned char[::1] data, long long begin, long long count, long long base_timestamp,
    long long earliest, long long latest, bint keys_required, list problems, long long problems_max,
) except? -3

@cython.locals(width="long long", size="long long")
cdef inline bint _rest_fits(
    const unsigned char[::1] data, long long position, long long limit, long long key_size,
) except -1

@cython.locals(width="long long", count="long long", pause_at="long long", parts="long long", size="long long")
cdef bint _headers_fit(const unsigned char[::1] data, long long position, long long limit) except -1

cdef inline long long _width(
    const unsigned char[::1] data, long long position, long long limit, long long width_max,
) noexcept

@cython.locals(width="long long", last="long long")
cdef long long _width_of_many(
    const unsigned char[::1] data, long long position, long long limit, long long width_max,
) noexcept

@cython.locals(bits="long long")
cdef inline long long _number(const unsigned char[::1] data, long long position, long long width) noexcept

@cython.locals(bits="long long", shift="long long", place="long long", byte="long long")
cdef long long _number_of_many(const unsigned char[::1] data, long long position, long long width) noexcept
