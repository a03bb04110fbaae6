/* xxh3-64, the checksum of frames and the hash of keys, and numbers as files hold them.

   The same hashes as the package xxhash gives, of any bytes and any seed. It is here because a call of that package from
   Python for each record takes longer than the hash does. */

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the formats are little endian, and so must the machine be"
#endif

#define PRIME32_1 0x9E3779B1u
#define PRIME32_2 0x85EBCA77u
#define PRIME32_3 0xC2B2AE3Du
#define PRIME64_1 0x9E3779B185EBCA87ull
#define PRIME64_2 0xC2B2AE3D27D4EB4Full
#define PRIME64_3 0x165667B19E3779F9ull
#define PRIME64_4 0x85EBCA77C2B2AE63ull
#define PRIME64_5 0x27D4EB2F165667C5ull
#define SECRET_BYTES 192
#define STRIPE 64
#define STRIPES_PER_BLOCK ((SECRET_BYTES - STRIPE) / 8)

static const unsigned char SECRET[SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static inline uint32_t u32_at(const unsigned char *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t u64_at(const unsigned char *p) { uint64_t v; memcpy(&v, p, 8); return v; }
static inline uint64_t rotate_left(uint64_t v, int by) { return (v << by) | (v >> (64 - by)); }

static inline uint64_t folded_product(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t avalanche(uint64_t h)
{
    h ^= h >> 37;
    h *= 0x165667919E3779F9ull;
    return h ^ (h >> 32);
}

static inline uint64_t avalanche_of_xxh64(uint64_t h)
{
    h ^= h >> 33;
    h *= PRIME64_2;
    h ^= h >> 29;
    h *= PRIME64_3;
    return h ^ (h >> 32);
}

static inline uint64_t mix16(const unsigned char *p, const unsigned char *secret, uint64_t seed)
{
    return folded_product(u64_at(p) ^ (u64_at(secret) + seed), u64_at(p + 8) ^ (u64_at(secret + 8) - seed));
}

static uint64_t hash_up_to_16(const unsigned char *p, size_t len, uint64_t seed)
{
    if (len > 8) {
        uint64_t low = u64_at(p) ^ ((u64_at(SECRET + 24) ^ u64_at(SECRET + 32)) + seed);
        uint64_t high = u64_at(p + len - 8) ^ ((u64_at(SECRET + 40) ^ u64_at(SECRET + 48)) - seed);
        return avalanche(len + __builtin_bswap64(low) + high + folded_product(low, high));
    }
    if (len >= 4) {
        seed ^= (uint64_t)__builtin_bswap32((uint32_t)seed) << 32;
        uint64_t both = u32_at(p + len - 4) + ((uint64_t)u32_at(p) << 32);
        uint64_t h = both ^ ((u64_at(SECRET + 8) ^ u64_at(SECRET + 16)) - seed);
        h ^= rotate_left(h, 49) ^ rotate_left(h, 24);
        h *= 0x9FB21C651E98DF25ull;
        h ^= (h >> 35) + len;
        h *= 0x9FB21C651E98DF25ull;
        return h ^ (h >> 28);
    }
    if (len) {
        uint32_t all = (uint32_t)p[0] << 16 | (uint32_t)p[len >> 1] << 24 | p[len - 1] | (uint32_t)len << 8;
        return avalanche_of_xxh64(all ^ ((u32_at(SECRET) ^ u32_at(SECRET + 4)) + seed));
    }
    return avalanche_of_xxh64(seed ^ u64_at(SECRET + 56) ^ u64_at(SECRET + 64));
}

static uint64_t hash_up_to_128(const unsigned char *p, size_t len, uint64_t seed)
{
    uint64_t sum = len * PRIME64_1;
    for (size_t step = (len - 1) / 32 + 1; step-- > 0;) {
        sum += mix16(p + 16 * step, SECRET + 32 * step, seed);
        sum += mix16(p + len - 16 * (step + 1), SECRET + 32 * step + 16, seed);
    }
    return avalanche(sum);
}

static uint64_t hash_up_to_240(const unsigned char *p, size_t len, uint64_t seed)
{
    uint64_t sum = len * PRIME64_1;
    size_t rounds = len / 16;
    for (size_t i = 0; i < 8; i++)
        sum += mix16(p + 16 * i, SECRET + 16 * i, seed);
    sum = avalanche(sum);
    for (size_t i = 8; i < rounds; i++)
        sum += mix16(p + 16 * i, SECRET + 16 * (i - 8) + 3, seed);
    return avalanche(sum + mix16(p + len - 16, SECRET + 136 - 17, seed));
}

#ifdef __SSE2__
static inline void add_stripe(uint64_t *sums, const unsigned char *p, const unsigned char *secret)
{
    for (int i = 0; i < STRIPE; i += 16) {
        __m128i word = _mm_loadu_si128((const __m128i *)(p + i));
        __m128i keyed = _mm_xor_si128(word, _mm_loadu_si128((const __m128i *)(secret + i)));
        __m128i product = _mm_mul_epu32(keyed, _mm_srli_epi64(keyed, 32));
        __m128i swapped = _mm_shuffle_epi32(word, _MM_SHUFFLE(1, 0, 3, 2));
        __m128i *sum = (__m128i *)((unsigned char *)sums + i);
        _mm_storeu_si128(sum, _mm_add_epi64(_mm_loadu_si128(sum), _mm_add_epi64(product, swapped)));
    }
}
#else
static inline void add_stripe(uint64_t *sums, const unsigned char *p, const unsigned char *secret)
{
    for (int i = 0; i < 8; i++) {
        uint64_t word = u64_at(p + 8 * i), keyed = word ^ u64_at(secret + 8 * i);
        sums[i ^ 1] += word;
        sums[i] += (keyed & 0xFFFFFFFFu) * (keyed >> 32);
    }
}
#endif

static uint64_t hash_long(const unsigned char *p, size_t len, uint64_t seed)
{
    uint64_t sums[8] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
    unsigned char secret[SECRET_BYTES];
    for (int i = 0; i < SECRET_BYTES; i += 16) {
        uint64_t low = u64_at(SECRET + i) + seed, high = u64_at(SECRET + i + 8) - seed;
        memcpy(secret + i, &low, 8);
        memcpy(secret + i + 8, &high, 8);
    }
    size_t stripes = (len - 1) / STRIPE;
    for (size_t n = 0; n < stripes; n++) {
        add_stripe(sums, p + n * STRIPE, secret + 8 * (n % STRIPES_PER_BLOCK));
        if ((n + 1) % STRIPES_PER_BLOCK == 0) {
            for (int i = 0; i < 8; i++) {
                uint64_t mixed = sums[i] ^ (sums[i] >> 47) ^ u64_at(secret + SECRET_BYTES - STRIPE + 8 * i);
                sums[i] = mixed * PRIME32_1;
            }
        }
    }
    add_stripe(sums, p + len - STRIPE, secret + SECRET_BYTES - STRIPE - 7);
    uint64_t sum = len * PRIME64_1;
    for (int i = 0; i < 4; i++)
        sum += folded_product(sums[2 * i] ^ u64_at(secret + 11 + 16 * i), sums[2 * i + 1] ^ u64_at(secret + 19 + 16 * i));
    return avalanche(sum);
}

static uint64_t xxh3_64(const unsigned char *p, size_t len, uint64_t seed)
{
    if (len <= 16) return hash_up_to_16(p, len, seed);
    if (len <= 128) return hash_up_to_128(p, len, seed);
    if (len <= 240) return hash_up_to_240(p, len, seed);
    return hash_long(p, len, seed);
}
