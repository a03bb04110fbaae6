/* The log's hot loops in C: the same answers as the Python beside it, in a fraction of the time.

   Nothing here decides anything. A record that is there, intact, and a plain value is returned; so is the
   certainty that no index entry mentions a key. Everything else (damage, expiry, a segment that is not
   mapped, another key with the same hash) goes back to the caller, whose Python takes a closer look and
   finds the words for it. Formats are drawn in frame.py and runs.py.

   The interpreter's lock is given up only while a segment is fetched. Nothing that is borrowed from what a caller
   passed, and that others may change, is used after that. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "xxh3.h"

/* -- frames ------------------------------------------------------------------------------------- */

#define FRAME_HEADER 80
#define FRAME_CHECKED 76
#define FRAME_FORMAT 1
#define DATA_KIND 1
#define ALIGN 16
#define SEGMENT_SHIFT 36
#define RECORD_BITS 14
#define OFFSET_MASK ((1u << 22) - 1)
#define RECORD_MASK ((1u << RECORD_BITS) - 1)

/* DELETED ends a search; ABSENT lets it go on with what is older. */
enum found { VALUE, DELETED, ABSENT, LOOK_CLOSER, FAILED };

/* The value of a record of a plain namespace, if it is a put of this key, intact, and never expires.

   Header and value are copied before they are verified: the memory is a file's, and what changes after a look at it
   must not be what is believed, or returned. */
static enum found value_in_frame(const unsigned char *segment, size_t size, uint64_t seed, uint64_t location,
                                 const unsigned char *key, size_t key_len, PyObject **value)
{
    size_t offset = (size_t)((location >> RECORD_BITS) & OFFSET_MASK) * ALIGN;
    size_t record = location & RECORD_MASK;
    if (offset + FRAME_HEADER > size) return LOOK_CLOSER;
    const unsigned char *frame = segment + offset;
    unsigned char head[FRAME_HEADER];
    memcpy(head, frame, FRAME_HEADER);
    if (memcmp(head, "CKF1", 4) != 0 || head[4] != FRAME_FORMAT || head[5] != DATA_KIND) return LOOK_CLOSER;
    if ((uint32_t)xxh3_64(head, FRAME_CHECKED, seed) != u32_at(head + FRAME_CHECKED)) return LOOK_CLOSER;
    uint64_t count = u32_at(head + 40), deletes = u32_at(head + 44), meta = u32_at(head + 48);
    uint64_t keys_bytes = u32_at(head + 52), expires_ms = u64_at(head + 56), values_bytes = u32_at(head + 72);
    if (record >= count || deletes > count || expires_ms) return LOOK_CLOSER;
    uint64_t puts = count - deletes;
    uint64_t value_ends = FRAME_HEADER + 4 * count, checks = value_ends + 4 * puts;
    uint64_t keys = checks + 4 * puts + meta, values = keys + keys_bytes;
    if (values + values_bytes > size - offset) return LOOK_CLOSER;

    const unsigned char *end = frame + FRAME_HEADER + 4 * record;
    uint64_t from = record ? u32_at(end - 4) : 0, to = u32_at(end);
    if (to < from || to > keys_bytes || to - from != key_len || memcmp(frame + keys + from, key, key_len) != 0)
        return LOOK_CLOSER;
    if (record >= puts) return DELETED;

    end = frame + value_ends + 4 * record;
    from = record ? u32_at(end - 4) : 0, to = u32_at(end);
    if (to < from || to > values_bytes) return LOOK_CLOSER;
    PyObject *copy = PyBytes_FromStringAndSize((const char *)frame + values + from, (Py_ssize_t)(to - from));
    if (!copy) return FAILED;
    const unsigned char *bytes = (const unsigned char *)PyBytes_AsString(copy);
    if ((uint32_t)xxh3_64(bytes, to - from, 0) != u32_at(frame + checks + 4 * record)) {
        Py_DECREF(copy);
        return LOOK_CLOSER;
    }
    *value = copy;
    return VALUE;
}

/* -- runs --------------------------------------------------------------------------------------- */

#define RUN_HEADER 32
#define RUN_FORMAT 1
#define ROW 24
#define CHUNK 2048

typedef struct {
    PyObject_HEAD
    Py_buffer run;
    Py_buffer verified;  /* one byte for each chunk, shared with the Python that owns the run */
    unsigned char *head; /* a copy, which stays what was verified whatever becomes of the file */
    uint64_t head_len, namespaces, entries, chunks;
} Entries;

static PyTypeObject *entries_type;
static PyObject *buffer_name, *seed_name, *sorted_name;

/* How long the head of a run of that size is, without its checksum; 0 if this is none of the format read here. */
static uint64_t head_length(const unsigned char *run, uint64_t size)
{
    if (size < RUN_HEADER || memcmp(run, "CKPTRUN1", 8) != 0 || u32_at(run + 8) != RUN_FORMAT) return 0;
    uint64_t namespaces = u32_at(run + 12), entries = u64_at(run + 16), chunks = u64_at(run + 24);
    if (entries > size || chunks != (entries + CHUNK - 1) / CHUNK) return 0;
    uint64_t head = RUN_HEADER + ROW * namespaces + 16 * chunks;
    return size == head + 8 + 16 * entries ? head : 0;
}

/* Take a copy of the head of a run, if it is intact. */
static int take_head(Entries *self)
{
    const unsigned char *run = self->run.buf;
    uint64_t size = (uint64_t)self->run.len, length = head_length(run, size);
    if (length) {
        self->head = PyMem_Malloc(length);
        if (!self->head) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(self->head, run, length);
        /* From here on the copy counts: a file may change while it is read. */
        if (head_length(self->head, size) == length && xxh3_64(self->head, length, 0) == u64_at(run + length)) {
            self->head_len = length;
            self->namespaces = u32_at(self->head + 12);
            self->entries = u64_at(self->head + 16);
            self->chunks = u64_at(self->head + 24);
            return 0;
        }
    }
    PyErr_SetString(PyExc_ValueError, "not an intact run of a known format");
    return -1;
}

static int make_verified(Entries *self)
{
    PyObject *verified = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)self->chunks);
    if (!verified) return -1;
    memset(PyByteArray_AsString(verified), 0, self->chunks);
    int failed = PyObject_GetBuffer(verified, &self->verified, PyBUF_WRITABLE) < 0;
    Py_DECREF(verified);
    return failed ? -1 : 0;
}

/* Made whole by `__new__`: without an `__init__`, no caller can skip a part of it. */
static PyObject *entries_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *run;
    if (kwargs && PyDict_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Entries takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O", &run)) return NULL;
    Entries *self = (Entries *)PyType_GenericAlloc(type, 0);
    if (!self) return NULL;
    if (PyObject_GetBuffer(run, &self->run, PyBUF_SIMPLE) < 0 || take_head(self) < 0 || make_verified(self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* The buffer holds the array, and being held, the array keeps its length. */
static PyObject *entries_verified(Entries *self, void *closure)
{
    (void)closure;
    return Py_NewRef(self->verified.obj);
}

static void entries_dealloc(Entries *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->run.obj) PyBuffer_Release(&self->run);
    if (self->verified.obj) PyBuffer_Release(&self->verified);
    PyMem_Free(self->head);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Where the columns of a run are. */
typedef struct {
    const unsigned char *rows, *fences, *checks, *hashes, *locations;
} Columns;

static Columns columns_of(const Entries *self)
{
    Columns columns;
    columns.rows = self->head + RUN_HEADER;
    columns.fences = columns.rows + ROW * self->namespaces;
    columns.checks = columns.fences + 8 * self->chunks;
    columns.hashes = (const unsigned char *)self->run.buf + self->head_len + 8;
    columns.locations = columns.hashes + 8 * self->entries;
    return columns;
}

static int is_verified(Entries *self, const Columns *columns, uint64_t chunk)
{
    unsigned char *flag = (unsigned char *)self->verified.buf + chunk;
    if (*flag) return 1;
    uint64_t start = chunk * CHUNK, count = self->entries - start < CHUNK ? self->entries - start : CHUNK;
    unsigned char both[16 * CHUNK];
    memcpy(both, columns->hashes + 8 * start, 8 * count);
    memcpy(both + 8 * count, columns->locations + 8 * start, 8 * count);
    if (xxh3_64(both, 16 * count, 0) != u64_at(columns->checks + 8 * chunk)) return 0;
    *flag = 1;
    return 1;
}

/* The first place from `low` to `high` whose number is not below `wanted`; numbers lie `stride` bytes apart. */
static inline uint64_t first_not_below(const unsigned char *numbers, size_t stride, uint64_t wanted, uint64_t low,
                                       uint64_t high)
{
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (u64_at(numbers + stride * middle) < wanted) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Where the entries of a namespace are; 0 if it has none here. */
static int bounds_of(const Entries *self, const Columns *columns, uint64_t namespace, uint64_t *start, uint64_t *end)
{
    uint64_t at = first_not_below(columns->rows, ROW, namespace, 0, self->namespaces);
    const unsigned char *row = columns->rows + ROW * at;
    if (at == self->namespaces || u64_at(row) != namespace) return 0;
    *start = u64_at(row + 8);
    *end = *start + u64_at(row + 16);
    return *start < *end && *end <= self->entries;
}

/* -- lookups ------------------------------------------------------------------------------------ */

/* Of the log, at one instant: what a reader needs to find plain values in it. */
typedef struct {
    uint64_t namespace, seed;
    PyObject *tables, *runs, *live, *segments, *fetch;
} View;

/* A live segment: one that was read from lately, or one that is fetched; NULL with or without an error. */
static PyObject *segment_of(const View *view, uint64_t location)
{
    PyObject *number = PyLong_FromUnsignedLongLong(location >> SEGMENT_SHIFT);
    if (!number) return NULL;
    int lives = PySet_Contains(view->live, number);
    PyObject *segment = lives > 0 ? PyDict_GetItemWithError(view->segments, number) : NULL;
    if (segment) {
        Py_INCREF(segment);
    } else if (lives > 0 && !PyErr_Occurred()) {
        segment = PyObject_CallFunctionObjArgs(view->fetch, number, NULL);
        /* The caller takes a closer look, finds the same error, and names the key in it. */
        if (!segment && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    }
    Py_DECREF(number);
    return segment;
}

static enum found value_in_segment(PyObject *segment, uint64_t location, const unsigned char *key, size_t key_len,
                                   PyObject **value)
{
    /* One question at a time: Python may lose an error if it is asked for more before the error is raised. */
    PyObject *seed = PyObject_GetAttr(segment, seed_name);
    if (!seed) return FAILED;
    uint64_t number = PyLong_AsUnsignedLongLong(seed);
    Py_DECREF(seed);
    if (PyErr_Occurred()) return FAILED;
    PyObject *buffer = PyObject_GetAttr(segment, buffer_name);
    if (!buffer) return FAILED;
    Py_buffer memory;
    int failed = PyObject_GetBuffer(buffer, &memory, PyBUF_SIMPLE) < 0;
    Py_DECREF(buffer);
    if (failed) return FAILED;
    enum found answer = value_in_frame(memory.buf, (size_t)memory.len, number, location, key, key_len, value);
    PyBuffer_Release(&memory);
    return answer;
}

static enum found value_at(const View *view, uint64_t location, const unsigned char *key, size_t key_len,
                           PyObject **value)
{
    PyObject *segment = segment_of(view, location);
    if (!segment) return PyErr_Occurred() ? FAILED : LOOK_CLOSER;
    enum found answer = value_in_segment(segment, location, key, key_len, value);
    Py_DECREF(segment);
    return answer;
}

static enum found look_in_run(const View *view, Entries *run, uint64_t hash, const unsigned char *key, size_t key_len,
                              PyObject **value)
{
    Columns columns = columns_of(run);
    uint64_t start, end;
    if (!bounds_of(run, &columns, view->namespace, &start, &end)) return ABSENT;
    /* A fence above the first is a hash of this namespace, so the fences in between are sorted. */
    uint64_t chunk = first_not_below(columns.fences, 8, hash, start / CHUNK + 1, (end - 1) / CHUNK + 1) - 1;
    uint64_t low = chunk * CHUNK > start ? chunk * CHUNK : start;
    uint64_t high = (chunk + 1) * CHUNK < end ? (chunk + 1) * CHUNK : end;
    if (!is_verified(run, &columns, chunk)) return LOOK_CLOSER;
    uint64_t at = first_not_below(columns.hashes, 8, hash, low, high);
    if (at == end) return ABSENT;
    if (!is_verified(run, &columns, at / CHUNK)) return LOOK_CLOSER;
    if (u64_at(columns.hashes + 8 * at) != hash) return ABSENT;
    /* If that is another key with the same hash, it takes a closer look, and so do the entries after it. */
    return value_at(view, u64_at(columns.locations + 8 * at), key, key_len, value);
}

static enum found look_up(const View *view, PyObject *key, PyObject **value)
{
    char *text;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(key, &text, &length) < 0) return FAILED;
    const unsigned char *bytes = (const unsigned char *)text;
    for (Py_ssize_t i = 0; i < PyList_Size(view->tables); i++) {
        PyObject *location = PyDict_GetItemWithError(PyList_GetItem(view->tables, i), key);
        if (location) {
            uint64_t place = PyLong_AsUnsignedLongLong(location);
            return PyErr_Occurred() ? FAILED : value_at(view, place, bytes, (size_t)length, value);
        }
        if (PyErr_Occurred()) return FAILED;
    }
    uint64_t hash = xxh3_64(bytes, (size_t)length, view->seed);
    enum found answer = ABSENT;
    for (Py_ssize_t i = 0; answer == ABSENT && i < PyTuple_Size(view->runs); i++) {
        PyObject *run = PyObject_GetAttr(PyTuple_GetItem(view->runs, i), sorted_name);
        if (!run) return FAILED;
        answer = PyObject_TypeCheck(run, entries_type)
                     ? look_in_run(view, (Entries *)run, hash, bytes, (size_t)length, value)
                     : LOOK_CLOSER;
        Py_DECREF(run);
    }
    return answer;
}

PyDoc_STRVAR(get_each_doc,
"get_each(keys, namespace, seed, tables, runs, live, segments, fetch, answer)\n--\n\n"
"Put the values of plain keys into `answer`; the keys that need a closer look.");

static PyObject *get_each(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 9 || !PyList_Check(args[0]) || !PyList_Check(args[3]) || !PyTuple_Check(args[4]) ||
        !PyFrozenSet_Check(args[5]) || !PyDict_Check(args[6]) || !PyCallable_Check(args[7]) || !PyDict_Check(args[8])) {
        PyErr_SetString(PyExc_TypeError, "get_each(list, int, int, list, tuple, frozenset, dict, callable, dict)");
        return NULL;
    }
    View view = {0, 0, args[3], args[4], args[5], args[6], args[7]};
    view.namespace = PyLong_AsUnsignedLongLong(args[1]);
    if (PyErr_Occurred()) return NULL;
    view.seed = PyLong_AsUnsignedLongLong(args[2]);
    if (PyErr_Occurred()) return NULL;
    PyObject *rest = PyList_New(0);
    for (Py_ssize_t i = 0; rest && i < PyList_Size(args[0]); i++) {
        PyObject *key = PyList_GetItem(args[0], i), *value = NULL; /* the list is the caller's alone */
        int failed = 0;
        switch (look_up(&view, key, &value)) {
        case VALUE: failed = PyDict_SetItem(args[8], key, value) < 0; break;
        case DELETED:
        case ABSENT: break;
        case LOOK_CLOSER: failed = PyList_Append(rest, key) < 0; break;
        case FAILED: failed = 1; break;
        }
        Py_XDECREF(value);
        if (failed) Py_CLEAR(rest);
    }
    return rest;
}

/* -- writing ------------------------------------------------------------------------------------ */

static inline void put_u32(unsigned char *p, uint64_t v) { uint32_t low = (uint32_t)v; memcpy(p, &low, 4); }
static inline void put_u64(unsigned char *p, uint64_t v) { memcpy(p, &v, 8); }

/* What is longer, together or for each record, is better written from where it is than copied. */
#define MAX_SEALED_BYTES (4u << 20)
#define MAX_SEALED_RECORD (1u << 16)
#define MAX_RECORDS (1 << RECORD_BITS)

/* How long all keys and all values are, if they are bytes that a frame is made of here. */
static int plain_sizes(PyObject *items, size_t *keys_len, size_t *values_len)
{
    Py_ssize_t at = 0, count = PyDict_Size(items);
    PyObject *key, *value;
    if (!count || count > MAX_RECORDS) return 0;
    *keys_len = *values_len = 0;
    while (PyDict_Next(items, &at, &key, &value)) {
        if (!PyBytes_CheckExact(key) || !PyBytes_CheckExact(value)) return 0;
        *keys_len += (size_t)PyBytes_Size(key);
        *values_len += (size_t)PyBytes_Size(value);
    }
    size_t all = *keys_len + *values_len;
    return all <= MAX_SEALED_BYTES && all <= (size_t)count * MAX_SEALED_RECORD;
}

PyDoc_STRVAR(sealed_puts_doc,
"sealed_puts(items, namespace, sequence, durable, epoch, seed)\n--\n\n"
"The whole frame of puts of a plain namespace, as `seal` makes it of what `build_body` made, and its keys; or None.");

static PyObject *sealed_puts(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    (void)module;
    if (given != 6 || !PyDict_CheckExact(args[0])) {
        PyErr_SetString(PyExc_TypeError, "sealed_puts(dict, int, int, int, int, int)");
        return NULL;
    }
    uint64_t numbers[5];
    for (int i = 0; i < 5; i++) {
        numbers[i] = PyLong_AsUnsignedLongLong(args[1 + i]);
        if (PyErr_Occurred()) return NULL;
    }
    uint64_t namespace = numbers[0], sequence = numbers[1], durable = numbers[2], epoch = numbers[3], seed = numbers[4];
    if (namespace > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a frame cannot hold that");
        return NULL;
    }
    /* Nothing runs between this and the end of the frame that could change the items. */
    PyObject *listed = PyDict_Keys(args[0]);
    if (!listed) return NULL;
    size_t keys_len, values_len;
    if (!plain_sizes(args[0], &keys_len, &values_len)) {
        Py_DECREF(listed);
        Py_RETURN_NONE;
    }
    size_t count = (size_t)PyDict_Size(args[0]), middle_len = 12 * count + keys_len;
    size_t used = FRAME_HEADER + middle_len + values_len, size = (used + ALIGN - 1) / ALIGN * ALIGN;
    PyObject *sealed = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!sealed) {
        Py_DECREF(listed);
        return NULL;
    }
    unsigned char *frame = (unsigned char *)PyBytes_AsString(sealed), *middle = frame + FRAME_HEADER;
    unsigned char *column = middle, *keys = middle + 12 * count, *values = middle + middle_len;
    size_t key_end = 0, value_end = 0;
    Py_ssize_t at = 0;
    PyObject *key, *value;
    while (PyDict_Next(args[0], &at, &key, &value)) {
        size_t key_len = (size_t)PyBytes_Size(key), value_len = (size_t)PyBytes_Size(value);
        memcpy(keys + key_end, PyBytes_AsString(key), key_len);
        memcpy(values + value_end, PyBytes_AsString(value), value_len);
        put_u32(column, key_end += key_len);
        put_u32(column + 8 * count, xxh3_64(values + value_end, value_len, 0));
        put_u32(column + 4 * count, value_end += value_len);
        column += 4;
    }
    memset(frame + used, 0, size - used);

    memset(frame, 0, FRAME_HEADER);
    memcpy(frame, "CKF1", 4);
    frame[4] = FRAME_FORMAT;
    frame[5] = DATA_KIND;
    put_u64(frame + 8, sequence);
    put_u64(frame + 16, durable);
    put_u32(frame + 24, epoch);
    put_u32(frame + 28, namespace);
    put_u32(frame + 40, count);
    put_u32(frame + 52, keys_len);
    put_u64(frame + 64, xxh3_64(middle, middle_len, seed));
    put_u32(frame + 72, values_len);
    put_u32(frame + FRAME_CHECKED, xxh3_64(frame, FRAME_CHECKED, seed));
    PyObject *both = PyTuple_Pack(2, sealed, listed);
    Py_DECREF(sealed);
    Py_DECREF(listed);
    return both;
}

/* -- columns ------------------------------------------------------------------------------------ */

PyDoc_STRVAR(hash_pieces_doc,
"hash_pieces(blob, lengths, seed, hashes)\n--\n\n"
"Write the xxh3-64 of each piece of a blob; `lengths` are u32, `hashes` u64, one for each piece.");

static PyObject *hash_pieces(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "hash_pieces(blob, lengths, seed, hashes)");
        return NULL;
    }
    uint64_t seed = PyLong_AsUnsignedLongLongMask(args[2]);
    if (PyErr_Occurred()) return NULL;
    Py_buffer blob, lengths, hashes;
    if (PyObject_GetBuffer(args[0], &blob, PyBUF_SIMPLE) < 0) return NULL;
    if (PyObject_GetBuffer(args[1], &lengths, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&blob);
        return NULL;
    }
    if (PyObject_GetBuffer(args[3], &hashes, PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&blob);
        PyBuffer_Release(&lengths);
        return NULL;
    }
    size_t pieces = (size_t)lengths.len / 4, at = 0, size = (size_t)blob.len;
    int fits = (size_t)hashes.len == 8 * pieces && (size_t)lengths.len == 4 * pieces;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        for (size_t i = 0; fits && i < pieces; i++) {
            size_t length = u32_at((const unsigned char *)lengths.buf + 4 * i);
            if (length > size - at) {
                fits = 0;
            } else {
                uint64_t hash = xxh3_64((const unsigned char *)blob.buf + at, length, seed);
                memcpy((unsigned char *)hashes.buf + 8 * i, &hash, 8);
                at += length;
            }
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&blob);
    PyBuffer_Release(&lengths);
    PyBuffer_Release(&hashes);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the lengths do not fit the blob");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* -- the module --------------------------------------------------------------------------------- */

/* Rises with every change of what native.py calls, so that it leaves one alone that was compiled before. */
#define INTERFACE 4

static PyGetSetDef entries_getset[] = {
    {"verified", (getter)entries_verified, NULL, "A byte for each chunk: whether its checksum was compared.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot entries_slots[] = {
    {Py_tp_doc, "Entries(run)\n--\n\nThe sorted columns of an index run whose head is intact, else ValueError."},
    {Py_tp_new, entries_new},
    {Py_tp_dealloc, entries_dealloc},
    {Py_tp_getset, entries_getset},
    {0, NULL},
};

static PyType_Spec entries_spec = {
    "ckpt_backends.engine._native.Entries", sizeof(Entries), 0, Py_TPFLAGS_DEFAULT, entries_slots,
};

static PyMethodDef functions[] = {
    {"get_each", (PyCFunction)(void (*)(void))get_each, METH_FASTCALL, get_each_doc},
    {"hash_pieces", (PyCFunction)(void (*)(void))hash_pieces, METH_FASTCALL, hash_pieces_doc},
    {"sealed_puts", (PyCFunction)(void (*)(void))sealed_puts, METH_FASTCALL, sealed_puts_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "_native", "The log's hot loops, compiled.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&module_def);
    if (!module) return NULL;
    entries_type = (PyTypeObject *)PyType_FromSpec(&entries_spec);
    buffer_name = PyUnicode_InternFromString("buffer");
    seed_name = PyUnicode_InternFromString("seed");
    sorted_name = PyUnicode_InternFromString("sorted");
    if (!entries_type || !buffer_name || !seed_name || !sorted_name ||
        PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0 ||
        PyModule_AddObjectRef(module, "Entries", (PyObject *)entries_type) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
