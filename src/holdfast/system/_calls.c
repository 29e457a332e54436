/* The compiled form of what plain_calls.py does: that module says what each function is for, and calls.py
 * chooses one of the two.
 *
 * Small on purpose, and without state. Whatever may wait for a disk is done without the interpreter's lock.
 */

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000LL
#define MOST_SECONDS (INT64_MAX / SECOND_NS)
#define COMPARED_BYTES 16384
#define INDEX_STATS_BYTES 40

#ifndef SYS_openat2
#define SYS_openat2 437 /* the same on every architecture */
#endif
#ifndef SYS_renameat2
#error "renameat2 is not known here: the plain form serves"
#endif
enum { RESOLVE_NO_SYMLINKS_ = 0x04, RESOLVE_BENEATH_ = 0x08 };
struct how {
    uint64_t flags, mode, resolve;
};

static int count_is(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments are needed, not %zd", wanted, given);
    return 0;
}

static int descriptor_of(PyObject *number, int *descriptor)
{
    long value = PyLong_AsLong(number);
    if (value == -1 && PyErr_Occurred())
        return 0;
    if (value < INT_MIN || value > INT_MAX) {
        PyErr_SetString(PyExc_OverflowError, "that is no descriptor");
        return 0;
    }
    *descriptor = (int)value;
    return 1;
}

/* A name or a path. One with a null byte in it would be cut off there, and mean something else. */
static const char *name_of(PyObject *bytes)
{
    char *text;
    return PyBytes_AsStringAndSize(bytes, &text, NULL) < 0 ? NULL : text;
}

static long opened_beneath(int root, const char *path)
{
    static const struct how how = {
        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS_ | RESOLVE_BENEATH_};
    return syscall(SYS_openat2, root, path, &how, sizeof how);
}

static PyObject *open_beneath(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int root;
    const char *path;
    long found;
    (void)module;
    if (!count_is(count, 2) || !descriptor_of(arguments[0], &root) || !(path = name_of(arguments[1])))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    found = opened_beneath(root, path);
    Py_END_ALLOW_THREADS
    if (found < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, arguments[1]);
    return PyLong_FromLong(found);
}

static PyObject *rename_specially(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int from, to, flags, code;
    const char *name, *new_name;
    (void)module;
    if (!count_is(count, 5) || !descriptor_of(arguments[0], &from) || !(name = name_of(arguments[1])) ||
        !descriptor_of(arguments[2], &to) || !(new_name = name_of(arguments[3])) ||
        !descriptor_of(arguments[4], &flags))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    code = syscall(SYS_renameat2, from, name, to, new_name, (unsigned)flags) ? errno : 0;
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(code);
}

/* Times are nanoseconds in Python, and those of some file systems are too many for 64 bits. */
static PyObject *nanoseconds_of(const struct timespec *time)
{
    PyObject *seconds, *second, *whole, *rest, *sum = NULL;
    if (time->tv_sec > -MOST_SECONDS && time->tv_sec < MOST_SECONDS)
        return PyLong_FromLongLong(time->tv_sec * SECOND_NS + time->tv_nsec);
    seconds = PyLong_FromLongLong(time->tv_sec);
    second = PyLong_FromLongLong(SECOND_NS);
    rest = PyLong_FromLong(time->tv_nsec);
    whole = seconds && second ? PyNumber_Multiply(seconds, second) : NULL;
    if (whole && rest)
        sum = PyNumber_Add(whole, rest);
    Py_XDECREF(seconds);
    Py_XDECREF(second);
    Py_XDECREF(rest);
    Py_XDECREF(whole);
    return sum;
}

static int time_of(PyObject *nanoseconds, struct timespec *time)
{
    PyObject *second = PyLong_FromLongLong(SECOND_NS);
    PyObject *parts = second ? PyNumber_Divmod(nanoseconds, second) : NULL;
    if (parts) {
        time->tv_sec = PyLong_AsLongLong(PyTuple_GetItem(parts, 0));
        time->tv_nsec = PyLong_AsLong(PyTuple_GetItem(parts, 1));
    }
    Py_XDECREF(second);
    Py_XDECREF(parts);
    return !PyErr_Occurred();
}

/* 0, or an error's number; -1: the file is not what was written. */
static int filled(int descriptor, const char *content, Py_ssize_t size, const struct timespec *mtime)
{
    char found[COMPARED_BYTES];
    struct timespec times[2] = {*mtime, *mtime};
    Py_ssize_t done = 0;
    if (flistxattr(descriptor, NULL, 0) > 0)
        return -1;
    while (done < size) {
        ssize_t written = pwrite(descriptor, content + done, (size_t)(size - done), done);
        if (written > 0)
            done += written;
        else if (written == 0)
            return EIO;
        else if (errno != EINTR)
            return errno;
    }
    if (futimens(descriptor, times))
        return errno;
    for (done = 0;;) {
        Py_ssize_t left = size - done;
        /* One byte more than was written: nothing may follow. */
        ssize_t got = pread(descriptor, found, left < COMPARED_BYTES ? (size_t)left + 1 : COMPARED_BYTES, done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno;
        if (got > left || memcmp(found, content + done, (size_t)got))
            return -1;
        if (got == left && left < COMPARED_BYTES)
            return 0;
        if (got == 0)
            return -1;
        done += got;
    }
}

static PyObject *set_mtime(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int descriptor, failed;
    struct timespec times[2];
    (void)module;
    if (!count_is(count, 2) || !descriptor_of(arguments[0], &descriptor) || !time_of(arguments[1], times))
        return NULL;
    times[1] = times[0];
    Py_BEGIN_ALLOW_THREADS
    failed = futimens(descriptor, times);
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyObject *fill(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int descriptor, code;
    char *content;
    Py_ssize_t size;
    struct timespec mtime;
    (void)module;
    if (!count_is(count, 3) || !descriptor_of(arguments[0], &descriptor) ||
        PyBytes_AsStringAndSize(arguments[1], &content, &size) < 0 || !time_of(arguments[2], &mtime))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    code = filled(descriptor, content, size, &mtime);
    Py_END_ALLOW_THREADS
    if (code > 0) {
        errno = code;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyBool_FromLong(code == 0);
}

/* A tuple of objects made for it, one of which may have failed to be made. */
static PyObject *tuple_of(PyObject **items, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    Py_ssize_t number;
    int failed = !tuple;
    for (number = 0; number < count; number++)
        if (!items[number])
            failed = 1;
        else if (!tuple)
            Py_DECREF(items[number]);
        else
            PyTuple_SetItem(tuple, number, items[number]);
    if (failed)
        Py_CLEAR(tuple);
    return tuple;
}

static PyObject *status_from(const struct stat *found, int attributes)
{
    PyObject *items[] = {PyLong_FromUnsignedLong(found->st_mode),
                         PyLong_FromUnsignedLong(found->st_uid),
                         PyLong_FromUnsignedLong(found->st_gid),
                         nanoseconds_of(&found->st_mtim),
                         PyLong_FromLongLong(found->st_size),
                         PyLong_FromUnsignedLongLong(found->st_dev),
                         PyLong_FromUnsignedLongLong(found->st_ino),
                         PyLong_FromUnsignedLongLong(found->st_nlink),
                         nanoseconds_of(&found->st_ctim),
                         PyLong_FromLong(attributes)};
    return tuple_of(items, sizeof items / sizeof *items);
}

static PyObject *status_of(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int directory, failed;
    const char *name;
    struct stat found;
    (void)module;
    if (!count_is(count, 2) || !descriptor_of(arguments[0], &directory) || !(name = name_of(arguments[1])))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    failed = fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW);
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, arguments[1]);
    return status_from(&found, 0);
}

static PyObject *status_through(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int descriptor, failed, attributes = 0;
    struct stat found;
    (void)module;
    if (!count_is(count, 1) || !descriptor_of(arguments[0], &descriptor))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    failed = fstat(descriptor, &found);
    if (!failed)
        attributes = flistxattr(descriptor, NULL, 0) > 0;
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_SetFromErrno(PyExc_OSError);
    return status_from(&found, attributes);
}

/* Packed stamps, in the form of system/stamps.py. They are not aligned. */
struct stamps_head {
    uint32_t size, path_size, names, ctime_ns;
    uint64_t inode;
    int64_t ctime;
};
struct stamps_row {
    uint64_t inode;
    int64_t size, ctime, mtime;
    uint32_t ctime_ns, mtime_ns;
};

static int is_same_file(const struct stat *found, const char *packed)
{
    struct stamps_row row;
    memcpy(&row, packed, sizeof row);
    return row.inode == found->st_ino && row.size == found->st_size && row.ctime == found->st_ctim.tv_sec &&
           row.mtime == found->st_mtim.tv_sec && row.ctime_ns == found->st_ctim.tv_nsec &&
           row.mtime_ns == found->st_mtim.tv_nsec;
}

/* The directory is open; the names end where the rows begin. */
static int are_same_files(int directory, const struct stamps_head *head, const char *name, const char *rows)
{
    struct stat found;
    uint32_t row;
    if (fstat(directory, &found) || head->inode != found.st_ino || head->ctime != found.st_ctim.tv_sec ||
        head->ctime_ns != found.st_ctim.tv_nsec)
        return 0;
    for (row = 0; row < head->names; row++) {
        const char *end = memchr(name, 0, (size_t)(rows - name));
        if (!end || fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) ||
            !is_same_file(&found, rows + row * sizeof(struct stamps_row)))
            return 0;
        name = end + 1;
    }
    return name == rows;
}

static int is_same_directory(int root, const struct stamps_head *head, const char *packed)
{
    const char *path = packed + sizeof *head, *names = path + (size_t)head->path_size + 1;
    const char *rows = packed + head->size - (size_t)head->names * sizeof(struct stamps_row);
    int directory, is_same;
    if (memchr(path, 0, (size_t)head->path_size + 1) != names - 1)
        return 0;
    directory = (int)opened_beneath(root, head->path_size ? path : ".");
    if (directory < 0)
        return 0;
    is_same = are_same_files(directory, head, names, rows);
    close(directory);
    return is_same;
}

/* The head of the stamps at that place, if all of them are there, and a null byte may follow the path. */
static int has_stamps(const Py_buffer *packed, Py_ssize_t place, struct stamps_head *head)
{
    size_t left = (size_t)(packed->len - place);
    if (left < sizeof *head)
        return 0;
    memcpy(head, (const char *)packed->buf + place, sizeof *head);
    return head->size <= left &&
           head->size > sizeof *head + (uint64_t)head->path_size + head->names * (uint64_t)sizeof(struct stamps_row);
}

static PyObject *compared(int root, const Py_buffer *packed)
{
    struct stamps_head head;
    Py_ssize_t place, total = 0;
    PyObject *answers;
    char *answer;
    for (place = 0; has_stamps(packed, place, &head); place += head.size)
        total++;
    if (place != packed->len) {
        PyErr_SetString(PyExc_ValueError, "these are no packed stamps");
        return NULL;
    }
    answers = PyBytes_FromStringAndSize(NULL, total);
    if (!answers)
        return NULL;
    answer = PyBytes_AsString(answers);
    Py_BEGIN_ALLOW_THREADS
    for (place = 0; has_stamps(packed, place, &head); place += head.size)
        *answer++ = !is_same_directory(root, &head, (const char *)packed->buf + place);
    Py_END_ALLOW_THREADS
    return answers;
}

static PyObject *compare_stamps(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int root;
    Py_buffer packed;
    PyObject *answers;
    (void)module;
    if (!count_is(count, 2) || !descriptor_of(arguments[0], &root) ||
        PyObject_GetBuffer(arguments[1], &packed, PyBUF_SIMPLE) < 0)
        return NULL;
    answers = compared(root, &packed);
    PyBuffer_Release(&packed);
    return answers;
}

static int add_event(PyObject *list, const struct inotify_event *event, const char *name, Py_ssize_t length)
{
    PyObject *items[] = {PyLong_FromLong(event->wd), PyLong_FromUnsignedLong(event->mask),
                         PyLong_FromUnsignedLong(event->cookie), PyBytes_FromStringAndSize(name, length)};
    PyObject *told = tuple_of(items, sizeof items / sizeof *items);
    int done = told && PyList_Append(list, told) == 0;
    Py_XDECREF(told);
    return done;
}

/* Whether the event is the expected one, a tuple of watch, mask and name; -1: it is not such a tuple. */
static int is_expected(PyObject *expected, const struct inotify_event *event, const char *name, Py_ssize_t length)
{
    long long watch, mask;
    char *expected_name;
    Py_ssize_t expected_length;
    if (!PyTuple_Check(expected) || PyTuple_Size(expected) != 3) {
        PyErr_SetString(PyExc_TypeError, "an expected event is a tuple of watch, mask and name");
        return -1;
    }
    watch = PyLong_AsLongLong(PyTuple_GetItem(expected, 0));
    mask = PyErr_Occurred() ? -1 : PyLong_AsLongLong(PyTuple_GetItem(expected, 1));
    if (PyErr_Occurred() ||
        PyBytes_AsStringAndSize(PyTuple_GetItem(expected, 2), &expected_name, &expected_length) < 0)
        return -1;
    return watch == event->wd && mask == event->mask && expected_length == length &&
           !memcmp(expected_name, name, (size_t)length);
}

static PyObject *events_in(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    char *data;
    const char *last_name = NULL;
    Py_ssize_t size, position = 0, expected, left_out = 0;
    uint32_t last_length = 0;
    unsigned long says_more;
    int last_watch = -1;
    PyObject *list;
    (void)module;
    if (!count_is(count, 3) || PyBytes_AsStringAndSize(arguments[0], &data, &size) < 0)
        return NULL;
    says_more = PyLong_AsUnsignedLong(arguments[1]);
    if (says_more == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    if (!PyList_Check(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "what is expected is a list");
        return NULL;
    }
    expected = PyList_Size(arguments[2]);
    list = PyList_New(0);
    while (list && position + (Py_ssize_t)sizeof(struct inotify_event) <= size) {
        struct inotify_event event;
        const char *name = data + position + sizeof event;
        Py_ssize_t length;
        int is_more, is_own = 0;
        memcpy(&event, data + position, sizeof event);
        position += (Py_ssize_t)sizeof event + event.len;
        if (position > size)
            break;
        length = (Py_ssize_t)strnlen(name, event.len);
        if (left_out < expected)
            is_own = is_expected(PyList_GetItem(arguments[2], left_out), &event, name, length);
        if (is_own < 0)
            Py_CLEAR(list);
        if (is_own) {
            left_out++;
            last_name = NULL;
            continue;
        }
        is_more = (event.mask & says_more) != 0;
        if (!is_more && last_name && event.wd == last_watch && event.len == last_length &&
            !memcmp(name, last_name, event.len))
            continue;
        last_watch = event.wd, last_length = event.len;
        last_name = is_more ? NULL : name;
        if (!add_event(list, &event, name, length))
            Py_CLEAR(list);
    }
    if (list && PyList_SetSlice(arguments[2], 0, left_out, NULL))
        Py_CLEAR(list);
    return list;
}

/* Copying the small files of a directory. */
#define CLONE _IOW(0x94, 9, int) /* FICLONE, which linux/fs.h defines together with much that clashes */
#define MOST_NAMES_BYTES 256
#define MOST_LABEL_BYTES 4096
static const char DATABASE_BEGINS[16] = "SQLite format 3";
static const char LABEL[] = "security.selinux";

enum outcome { COPIED, ON_ITS_OWN, NO_ROOM };

struct copying {
    int source, target, clones, is_root;
    const char *groups; /* that this user may give files to; not aligned */
    size_t group_count, most;
    char *room;
    size_t left;
    struct timespec settled; /* a file that changed before this moment shows every later change in its times */
};
struct copied {
    struct stat original, copy;
    int is_steady, has_attributes;
};

static int is_before(const struct timespec *one, const struct timespec *other)
{
    return one->tv_sec < other->tv_sec || (one->tv_sec == other->tv_sec && one->tv_nsec < other->tv_nsec);
}

static int is_same_time(const struct timespec *one, const struct timespec *other)
{
    return one->tv_sec == other->tv_sec && one->tv_nsec == other->tv_nsec;
}

static int is_unchanged(const struct stat *before, const struct stat *after)
{
    return before->st_size == after->st_size && is_same_time(&before->st_mtim, &after->st_mtim) &&
           is_same_time(&before->st_ctim, &after->st_ctim);
}

/* Whether it has extended attributes beside its security label, which every file of some systems has. */
static int has_other_attributes(int descriptor, int *has_label)
{
    char names[MOST_NAMES_BYTES];
    ssize_t size = flistxattr(descriptor, names, sizeof names);
    *has_label = size == (ssize_t)sizeof LABEL && !memcmp(names, LABEL, sizeof LABEL);
    return size > 0 ? !*has_label : size < 0 && errno == ERANGE;
}

/* Reads exactly that many bytes, and finds that no more follow. */
static int is_read_whole(int descriptor, char *room, size_t size)
{
    size_t done = 0;
    while (done <= size) {
        ssize_t got = pread(descriptor, room + done, size + 1 - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0 && done == size;
        done += (size_t)got;
    }
    return 0;
}

static int is_written(int descriptor, const char *content, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t written = pwrite(descriptor, content + done, size - done, (off_t)done);
        if (written > 0)
            done += (size_t)written;
        else if (written == 0)
            errno = EIO;
        if (written == 0 || (written < 0 && errno != EINTR))
            return 0;
    }
    return 1;
}

/* Whether a file holds exactly this. */
static int is_content(int descriptor, const char *content, size_t size)
{
    char room[1 << 16];
    size_t done = 0;
    while (done < size) {
        size_t wanted = size - done < sizeof room ? size - done : sizeof room;
        ssize_t got = pread(descriptor, room, wanted, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || memcmp(room, content + done, (size_t)got))
            return 0;
        done += (size_t)got;
    }
    return 1;
}

/* Share the blocks of the original, if what was read from it is certainly what they hold. A program may have changed it
   through a mapping since, without a new ctime; but sharing makes the kernel note the next change, so if the content is
   read as before after that, it is what is shared. */
static int is_cloned(struct copying *work, int original, int copy, const struct copied *found)
{
    struct stat after;
    size_t size = (size_t)found->original.st_size;
    if (!work->clones || !found->is_steady || !is_before(&found->original.st_ctim, &work->settled))
        return 0;
    if (ioctl(copy, CLONE, original)) {
        work->clones = 0;
        return 0;
    }
    if (is_content(original, work->room, size) && !fstat(original, &after) && is_unchanged(&found->original, &after))
        return 1;
    return ftruncate(copy, 0) ? -1 : 0;
}

static int is_ignored(int code)
{
    return code == EPERM || code == EACCES || code == EOPNOTSUPP || code == ENODATA;
}

static int is_labelled(int original, int copy)
{
    char label[MOST_LABEL_BYTES];
    ssize_t size = fgetxattr(original, LABEL, label, sizeof label);
    if (size < 0)
        return is_ignored(errno);
    return !fsetxattr(copy, LABEL, label, (size_t)size, 0) || is_ignored(errno);
}

static int is_given_away(const struct copying *work, int copy, const struct stat *original)
{
    struct stat found;
    size_t number;
    if (fstat(copy, &found))
        return 0;
    if (work->is_root)
        return (found.st_uid == original->st_uid && found.st_gid == original->st_gid) ||
               !fchown(copy, original->st_uid, original->st_gid);
    for (number = 0; found.st_gid != original->st_gid && number < work->group_count; number++) {
        uint32_t group;
        memcpy(&group, work->groups + number * sizeof group, sizeof group);
        if (group == original->st_gid)
            return !fchown(copy, (uid_t)-1, original->st_gid);
    }
    return 1;
}

/* It was made with the mode of the original, from which the user's mask may have taken something. */
static int has_mode(int copy, const struct stat *original)
{
    struct stat found;
    mode_t mode = original->st_mode & 07777;
    return !fstat(copy, &found) && ((found.st_mode & 07777) == mode || !fchmod(copy, mode));
}

/* Fills and describes the new file; 0 with errno if that fails. */
static int is_made(struct copying *work, int original, int copy, int has_label, struct copied *found)
{
    struct timespec times[2] = {found->original.st_atim, found->original.st_mtim};
    size_t size = (size_t)found->original.st_size;
    int label, cloned = size ? is_cloned(work, original, copy, found) : 1;
    if (cloned < 0 || (!cloned && !is_written(copy, work->room, size)) ||
        !is_given_away(work, copy, &found->original) || (has_label && !is_labelled(original, copy)) ||
        !has_mode(copy, &found->original) || futimens(copy, times) || fstat(copy, &found->copy))
        return 0;
    found->has_attributes = has_other_attributes(copy, &label);
    return 1;
}

/* The original is open. Nothing is made before all of it is read, so what cannot be read leaves nothing behind. */
static int outcome_of(struct copying *work, int original, const char *name, struct copied *found)
{
    struct stat before;
    int copy, has_label, made;
    size_t size;
    if (fstat(original, &before) || !S_ISREG(before.st_mode) || before.st_nlink != 1 || before.st_size < 0 ||
        (uintmax_t)before.st_size > work->most || (int64_t)before.st_blocks * 512 < before.st_size ||
        has_other_attributes(original, &has_label))
        return ON_ITS_OWN;
    size = (size_t)before.st_size;
    if (size >= work->left)
        return NO_ROOM;
    if (!is_read_whole(original, work->room, size) ||
        (size >= sizeof DATABASE_BEGINS && !memcmp(work->room, DATABASE_BEGINS, sizeof DATABASE_BEGINS)) ||
        fstat(original, &found->original) || found->original.st_size != before.st_size)
        return ON_ITS_OWN;
    found->is_steady = is_unchanged(&before, &found->original);
    copy = openat(work->target, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                  found->original.st_mode & 0777);
    if (copy < 0)
        return -errno;
    made = is_made(work, original, copy, has_label, found) ? 0 : -errno;
    if (close(copy) && !made)
        made = -errno;
    work->room += size, work->left -= size;
    return made;
}

static int copied_from(struct copying *work, const char *name, struct copied *found)
{
    int outcome, original = openat(work->source, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (original < 0)
        return ON_ITS_OWN;
    outcome = outcome_of(work, original, name, found);
    close(original);
    return outcome;
}

/* How many of the names were dealt with; the last of them may have failed. */
static Py_ssize_t copied_names(struct copying *work, const char **names, Py_ssize_t count, int *outcomes,
                               struct copied *found)
{
    Py_ssize_t number;
    clock_gettime(CLOCK_REALTIME, &work->settled);
    work->settled.tv_sec -= 1;
    for (number = 0; number < count; number++) {
        outcomes[number] = copied_from(work, names[number], found + number);
        if (outcomes[number] == NO_ROOM)
            break;
        if (outcomes[number] < 0)
            return number + 1;
    }
    return number;
}

static PyObject *copied_as(int outcome, const struct copied *found)
{
    if (outcome == ON_ITS_OWN)
        Py_RETURN_NONE;
    {
        PyObject *items[] = {PyBool_FromLong(found->is_steady), status_from(&found->original, 0),
                             status_from(&found->copy, found->has_attributes)};
        return tuple_of(items, sizeof items / sizeof *items);
    }
}

static PyObject *list_of_copied(PyObject *names, const int *outcomes, const struct copied *found, Py_ssize_t count)
{
    PyObject *list = PyList_New(0);
    Py_ssize_t number;
    for (number = 0; list && number < count; number++) {
        PyObject *item;
        if (outcomes[number] < 0) {
            errno = -outcomes[number];
            PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, PyTuple_GetItem(names, number));
            item = NULL;
        } else
            item = copied_as(outcomes[number], found + number);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *copied_into(struct copying *work, PyObject *names)
{
    Py_ssize_t number, done, count = PyTuple_Size(names);
    PyObject *list = NULL;
    const char **texts;
    int *outcomes;
    struct copied *found;
    if (count < 0)
        return NULL;
    texts = PyMem_Malloc((size_t)count * sizeof *texts);
    outcomes = PyMem_Malloc((size_t)count * sizeof *outcomes);
    found = PyMem_Malloc((size_t)count * sizeof *found);
    if (!texts || !outcomes || !found) {
        PyErr_NoMemory();
        goto end;
    }
    for (number = 0; number < count; number++)
        if (!(texts[number] = name_of(PyTuple_GetItem(names, number))))
            goto end;
    Py_BEGIN_ALLOW_THREADS
    done = copied_names(work, texts, count, outcomes, found);
    Py_END_ALLOW_THREADS
    list = list_of_copied(names, outcomes, found, done);
end:
    PyMem_Free(texts);
    PyMem_Free(outcomes);
    PyMem_Free(found);
    return list;
}

static PyObject *copy_files(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    struct copying work = {.clones = 1};
    Py_buffer room, groups = {.obj = NULL};
    PyObject *list = NULL;
    (void)module;
    if (!count_is(count, 6) || !descriptor_of(arguments[0], &work.source) ||
        !descriptor_of(arguments[1], &work.target))
        return NULL;
    work.most = PyLong_AsSize_t(arguments[4]);
    if (PyErr_Occurred() || PyObject_GetBuffer(arguments[3], &room, PyBUF_WRITABLE) < 0)
        return NULL;
    work.is_root = arguments[5] == Py_None;
    if (work.is_root || !PyObject_GetBuffer(arguments[5], &groups, PyBUF_SIMPLE)) {
        work.groups = groups.obj ? groups.buf : NULL;
        work.group_count = groups.obj ? (size_t)groups.len / sizeof(uint32_t) : 0;
        work.room = room.buf, work.left = (size_t)room.len;
        list = copied_into(&work, arguments[2]);
        if (groups.obj)
            PyBuffer_Release(&groups);
    }
    PyBuffer_Release(&room);
    return list;
}

/* Listing a directory. */
struct text {
    char *bytes;
    size_t used, room;
};
struct linked {
    uint64_t device, inode, disk_bytes;
};
struct listing {
    struct text names, rows, folders, linked_names, linked; /* a null byte after each name */
    struct stat own;
    struct timespec newest;
    uint64_t files, size_bytes, disk_bytes;
    int is_plain;
};

static int is_appended(struct text *text, const void *more, size_t size)
{
    if (text->room - text->used < size) {
        size_t room = 2 * text->room + size + 512;
        char *bytes = realloc(text->bytes, room);
        if (!bytes)
            return 0;
        text->bytes = bytes, text->room = room;
    }
    memcpy(text->bytes + text->used, more, size);
    text->used += size;
    return 1;
}

static void note_time(struct listing *listing, const struct timespec *time)
{
    if (is_before(&listing->newest, time))
        listing->newest = *time;
}

/* Notes an entry that is no directory. */
static int is_noted(struct listing *listing, const char *name, size_t name_size, const struct stat *found)
{
    struct stamps_row row = {found->st_ino,          found->st_size,
                             found->st_ctim.tv_sec,  found->st_mtim.tv_sec,
                             (uint32_t)found->st_ctim.tv_nsec, (uint32_t)found->st_mtim.tv_nsec};
    uint64_t disk_bytes = (uint64_t)found->st_blocks * 512;
    note_time(listing, &found->st_ctim);
    listing->files++, listing->size_bytes += (uint64_t)found->st_size;
    if (!S_ISREG(found->st_mode) && !S_ISLNK(found->st_mode) && !S_ISFIFO(found->st_mode))
        listing->is_plain = 0;
    if (found->st_nlink > 1) {
        struct linked linked = {found->st_dev, found->st_ino, disk_bytes};
        if (!is_appended(&listing->linked_names, name, name_size) ||
            !is_appended(&listing->linked, &linked, sizeof linked))
            return 0;
    } else
        listing->disk_bytes += disk_bytes;
    return is_appended(&listing->names, name, name_size) && is_appended(&listing->rows, &row, sizeof row);
}

/* 0 with errno if it cannot be listed; what vanishes meanwhile was never there. */
static int is_entry_listed(struct listing *listing, int directory, const char *name)
{
    struct stat found;
    size_t name_size = strlen(name) + 1;
    if (fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT;
    if (found.st_dev != listing->own.st_dev)
        listing->is_plain = 0;
    if (S_ISDIR(found.st_mode))
        return is_appended(&listing->folders, name, name_size);
    return is_noted(listing, name, name_size, &found);
}

static int is_among(const char *name, const char **names, Py_ssize_t count)
{
    while (count--)
        if (!strcmp(name, names[count]))
            return 1;
    return !strcmp(name, ".") || !strcmp(name, "..");
}

static int is_listed(struct listing *listing, DIR *stream, const char **skip, Py_ssize_t count)
{
    int directory = dirfd(stream);
    struct dirent *entry;
    if (fstat(directory, &listing->own))
        return 0;
    listing->newest = listing->own.st_ctim;
    listing->disk_bytes = (uint64_t)listing->own.st_blocks * 512;
    while (errno = 0, (entry = readdir(stream)))
        if (!is_among(entry->d_name, skip, count) && !is_entry_listed(listing, directory, entry->d_name))
            return 0;
    return !errno;
}

/* A descriptor of its own, because reading a directory moves the place in it. */
static int is_opened_and_listed(struct listing *listing, int directory, const char **skip, Py_ssize_t count)
{
    int code, own = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = own < 0 ? NULL : fdopendir(own);
    int done = stream && is_listed(listing, stream, skip, count);
    code = errno;
    if (stream)
        closedir(stream);
    else if (own >= 0)
        close(own);
    errno = code;
    return done;
}

static PyObject *stamps_in(const struct listing *listing, PyObject *path)
{
    const struct timespec *ctime = &listing->own.st_ctim;
    struct stamps_head head = {.names = (uint32_t)(listing->rows.used / sizeof(struct stamps_row)),
                               .ctime_ns = (uint32_t)ctime->tv_nsec, .inode = listing->own.st_ino,
                               .ctime = ctime->tv_sec};
    struct text packed = {NULL, 0, 0};
    PyObject *bytes;
    head.path_size = (uint32_t)PyBytes_Size(path);
    head.size = (uint32_t)(sizeof head + head.path_size + 1 + listing->names.used + listing->rows.used);
    if (!is_appended(&packed, &head, sizeof head) ||
        !is_appended(&packed, PyBytes_AsString(path), (size_t)head.path_size + 1) ||
        !is_appended(&packed, listing->names.bytes, listing->names.used) ||
        !is_appended(&packed, listing->rows.bytes, listing->rows.used))
        bytes = PyErr_NoMemory();
    else
        bytes = PyBytes_FromStringAndSize(packed.bytes, (Py_ssize_t)packed.used);
    free(packed.bytes);
    return bytes;
}

static PyObject *names_in(const struct text *text)
{
    PyObject *list = PyList_New(0);
    size_t place = 0;
    while (list && place < text->used) {
        PyObject *name = PyBytes_FromString(text->bytes + place);
        if (!name || PyList_Append(list, name))
            Py_CLEAR(list);
        Py_XDECREF(name);
        place += strlen(text->bytes + place) + 1;
    }
    return list;
}

static PyObject *linked_in(const struct listing *listing)
{
    PyObject *list = PyList_New(0);
    const char *name = listing->linked_names.bytes;
    size_t place;
    for (place = 0; list && place < listing->linked.used; place += sizeof(struct linked)) {
        struct linked linked;
        memcpy(&linked, listing->linked.bytes + place, sizeof linked);
        {
            PyObject *items[] = {PyBytes_FromString(name), PyLong_FromUnsignedLongLong(linked.device),
                                 PyLong_FromUnsignedLongLong(linked.inode),
                                 PyLong_FromUnsignedLongLong(linked.disk_bytes)};
            PyObject *told = tuple_of(items, sizeof items / sizeof *items);
            if (!told || PyList_Append(list, told))
                Py_CLEAR(list);
            Py_XDECREF(told);
        }
        name += strlen(name) + 1;
    }
    return list;
}

static PyObject *listing_as(const struct listing *listing, PyObject *path)
{
    PyObject *items[] = {stamps_in(listing, path),
                         names_in(&listing->folders),
                         linked_in(listing),
                         nanoseconds_of(&listing->newest),
                         PyLong_FromUnsignedLongLong(listing->files),
                         PyLong_FromUnsignedLongLong(listing->size_bytes),
                         PyLong_FromUnsignedLongLong(listing->disk_bytes),
                         PyBool_FromLong(listing->is_plain)};
    return tuple_of(items, sizeof items / sizeof *items);
}

static PyObject *listed_without(int directory, PyObject *path, const char **skip, Py_ssize_t count)
{
    struct listing listing = {.is_plain = 1};
    PyObject *told = NULL;
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = is_opened_and_listed(&listing, directory, skip, count);
    Py_END_ALLOW_THREADS
    if (done)
        told = listing_as(&listing, path);
    else
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    free(listing.names.bytes), free(listing.rows.bytes), free(listing.folders.bytes);
    free(listing.linked_names.bytes), free(listing.linked.bytes);
    return told;
}

static PyObject *list_directory(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int directory;
    const char **skip;
    Py_ssize_t number, skipped;
    PyObject *told = NULL;
    (void)module;
    if (!count_is(count, 3) || !descriptor_of(arguments[0], &directory) || !name_of(arguments[1]))
        return NULL;
    if (!PyTuple_Check(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "what is skipped is a tuple of names");
        return NULL;
    }
    skipped = PyTuple_Size(arguments[2]);
    skip = PyMem_Malloc(((size_t)skipped + 1) * sizeof *skip);
    if (!skip)
        return PyErr_NoMemory();
    for (number = 0; number < skipped && (skip[number] = name_of(PyTuple_GetItem(arguments[2], number))); number++)
        ;
    if (number == skipped)
        told = listed_without(directory, arguments[1], skip, skipped);
    PyMem_Free(skip);
    return told;
}

/* Stat data in the form of git's index: ten numbers of 32 bits, the most significant byte first. */
static void put_number(unsigned char **place, uint64_t number)
{
    int shift;
    for (shift = 24; shift >= 0; shift -= 8)
        *(*place)++ = (unsigned char)(number >> shift);
}

static void put_stats(unsigned char *place, int root, const char *path)
{
    struct stat found;
    if (fstatat(root, path, &found, AT_SYMLINK_NOFOLLOW)) {
        memset(place, 0, INDEX_STATS_BYTES);
        return;
    }
    put_number(&place, (uint64_t)found.st_ctim.tv_sec);
    put_number(&place, (uint64_t)found.st_ctim.tv_nsec);
    put_number(&place, (uint64_t)found.st_mtim.tv_sec);
    put_number(&place, (uint64_t)found.st_mtim.tv_nsec);
    put_number(&place, found.st_dev);
    put_number(&place, found.st_ino);
    put_number(&place, found.st_mode);
    put_number(&place, found.st_uid);
    put_number(&place, found.st_gid);
    put_number(&place, (uint64_t)found.st_size);
}

static PyObject *index_stats(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int root;
    char *paths;
    Py_ssize_t size, place, number = 0;
    PyObject *stats;
    unsigned char *bytes;
    (void)module;
    if (!count_is(count, 2) || !descriptor_of(arguments[0], &root) ||
        PyBytes_AsStringAndSize(arguments[1], &paths, &size) < 0)
        return NULL;
    for (place = 0; place < size; place++)
        number += !paths[place];
    stats = PyBytes_FromStringAndSize(NULL, number * INDEX_STATS_BYTES);
    if (!stats)
        return NULL;
    bytes = (unsigned char *)PyBytes_AsString(stats);
    Py_BEGIN_ALLOW_THREADS
    for (place = 0; number--; place += (Py_ssize_t)strlen(paths + place) + 1, bytes += INDEX_STATS_BYTES)
        put_stats(bytes, root, paths + place);
    Py_END_ALLOW_THREADS
    return stats;
}

/* The entries of git's index, of the versions in which each stands for itself: their places, and the end of the last. */
struct index_file {
    const unsigned char *bytes;
    uint64_t size, digest_size;
};

static uint32_t number_at(const unsigned char *place)
{
    return (uint32_t)place[0] << 24 | (uint32_t)place[1] << 16 | (uint32_t)place[2] << 8 | place[3];
}

/* The name of the entry at that place, and how long the entry is; 0 if it reaches beyond the end of the file. */
static uint64_t entry_at(const struct index_file *file, uint64_t place, const unsigned char **name, uint64_t *length)
{
    uint64_t flags_at = place + INDEX_STATS_BYTES + file->digest_size, name_at = flags_at + 2, whole;
    const unsigned char *end;
    unsigned flags;
    if (name_at >= file->size)
        return 0;
    flags = (unsigned)file->bytes[flags_at] << 8 | file->bytes[flags_at + 1];
    name_at += flags & 0x4000 ? 2 : 0;
    end = name_at < file->size ? memchr(file->bytes + name_at, 0, file->size - name_at) : NULL;
    if (!end)
        return 0;
    *name = file->bytes + name_at;
    *length = (uint64_t)(end - *name);
    if ((flags & 0xFFF) != (*length < 0xFFF ? *length : 0xFFF))
        return 0;
    whole = (name_at - place + *length + 8) & ~(uint64_t)7;
    return place + whole <= file->size ? whole : 0;
}

static int is_in_order(const unsigned char *one, uint64_t length, const unsigned char *other, uint64_t other_length)
{
    int compared = memcmp(one, other, length < other_length ? length : other_length);
    return compared < 0 || (compared == 0 && length <= other_length); /* a path in conflict is there several times */
}

static int put_offsets(uint32_t *offsets, uint32_t entries, const struct index_file *file)
{
    const unsigned char *name, *before = NULL;
    uint64_t place = 12, size, length, length_before = 0;
    uint32_t number;
    for (number = 0; number < entries; number++) {
        offsets[number] = (uint32_t)place;
        if (!(size = entry_at(file, place, &name, &length)) ||
            (before && !is_in_order(before, length_before, name, length)))
            return 0;
        before = name, length_before = length;
        place += size;
    }
    offsets[entries] = (uint32_t)place;
    return 1;
}

static PyObject *offsets_in(const struct index_file *file)
{
    uint32_t entries = 0, version = 0;
    PyObject *offsets = NULL;
    int is_sound = 0;
    if (file->size > 12 && file->size < UINT32_MAX && memcmp(file->bytes, "DIRC", 4) == 0) {
        version = number_at(file->bytes + 4);
        entries = number_at(file->bytes + 8);
    }
    if ((version == 2 || version == 3) && entries < file->size / INDEX_STATS_BYTES) {
        offsets = PyBytes_FromStringAndSize(NULL, ((Py_ssize_t)entries + 1) * (Py_ssize_t)sizeof(uint32_t));
        if (!offsets)
            return NULL;
        Py_BEGIN_ALLOW_THREADS
        is_sound = put_offsets((uint32_t *)(void *)PyBytes_AsString(offsets), entries, file);
        Py_END_ALLOW_THREADS
    }
    if (!is_sound) {
        Py_XDECREF(offsets);
        PyErr_SetString(PyExc_ValueError, "this is no index of a known form");
        return NULL;
    }
    return offsets;
}

static PyObject *index_offsets(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer content;
    struct index_file file;
    PyObject *offsets;
    int digest_size;
    (void)module;
    if (!count_is(count, 2) || !descriptor_of(arguments[1], &digest_size) ||
        PyObject_GetBuffer(arguments[0], &content, PyBUF_SIMPLE) < 0)
        return NULL;
    if (digest_size < 0 || digest_size > content.len)
        digest_size = (int)(content.len < INT_MAX ? content.len : INT_MAX);
    file.bytes = content.buf;
    file.digest_size = (uint64_t)digest_size;
    file.size = (uint64_t)content.len - file.digest_size;
    offsets = offsets_in(&file);
    PyBuffer_Release(&content);
    return offsets;
}

enum { OPEN_TREE_CLONE_ = 1, MOVE_MOUNT_F_EMPTY_PATH_ = 4, AT_RECURSIVE_ = 0x8000 };
#ifndef SYS_open_tree
#define SYS_open_tree 428 /* these two are the same on every architecture as well */
#define SYS_move_mount 429
#endif

static int is_written_to(const char *path, const char *text)
{
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    return descriptor >= 0 && write(descriptor, text, strlen(text)) == (ssize_t)strlen(text);
}

/* What enter_view in process/supervisor.py does, in a child that ends right after it: it may only make system calls,
 * because another thread may have had any lock when it was forked. */
static int is_mounted_onto_itself(const char *folder, uid_t user, const char *users, const char *groups)
{
    long tree;
    if (unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER))
        return 0;
    if (user != 0 && !(is_written_to("/proc/self/setgroups", "deny") && is_written_to("/proc/self/uid_map", users) &&
                       is_written_to("/proc/self/gid_map", groups)))
        return 0;
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
        return 0;
    tree = syscall(SYS_open_tree, AT_FDCWD, folder,
                   OPEN_TREE_CLONE_ | O_CLOEXEC | AT_RECURSIVE_ | AT_SYMLINK_NOFOLLOW);
    return tree >= 0 && !syscall(SYS_move_mount, tree, "", AT_FDCWD, folder, MOVE_MOUNT_F_EMPTY_PATH_);
}

static PyObject *can_mount(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    const char *folder;
    char users[64], groups[64];
    uid_t user = getuid();
    pid_t child, ended;
    int status = -1;
    (void)module;
    if (!count_is(count, 1) || !(folder = name_of(arguments[0])))
        return NULL;
    snprintf(users, sizeof users, "%u %u 1", (unsigned)user, (unsigned)user);
    snprintf(groups, sizeof groups, "%u %u 1", (unsigned)getgid(), (unsigned)getgid());
    Py_BEGIN_ALLOW_THREADS
    child = fork();
    if (child == 0)
        _exit(!is_mounted_onto_itself(folder, user, users, groups));
    do
        ended = child < 0 ? -1 : waitpid(child, &status, 0);
    while (ended < 0 && child > 0 && errno == EINTR);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(ended == child && child > 0 && status == 0);
}

static PyMethodDef methods[] = {
    {"open_beneath", (PyCFunction)(void (*)(void))open_beneath, METH_FASTCALL, NULL},
    {"rename_specially", (PyCFunction)(void (*)(void))rename_specially, METH_FASTCALL, NULL},
    {"set_mtime", (PyCFunction)(void (*)(void))set_mtime, METH_FASTCALL, NULL},
    {"fill", (PyCFunction)(void (*)(void))fill, METH_FASTCALL, NULL},
    {"status_of", (PyCFunction)(void (*)(void))status_of, METH_FASTCALL, NULL},
    {"status_through", (PyCFunction)(void (*)(void))status_through, METH_FASTCALL, NULL},
    {"copy_files", (PyCFunction)(void (*)(void))copy_files, METH_FASTCALL, NULL},
    {"list_directory", (PyCFunction)(void (*)(void))list_directory, METH_FASTCALL, NULL},
    {"index_stats", (PyCFunction)(void (*)(void))index_stats, METH_FASTCALL, NULL},
    {"index_offsets", (PyCFunction)(void (*)(void))index_offsets, METH_FASTCALL, NULL},
    {"compare_stamps", (PyCFunction)(void (*)(void))compare_stamps, METH_FASTCALL, NULL},
    {"can_mount", (PyCFunction)(void (*)(void))can_mount, METH_FASTCALL, NULL},
    {"events_in", (PyCFunction)(void (*)(void))events_in, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "_calls", .m_size = 0, .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__calls(void)
{
    return PyModuleDef_Init(&definition);
}
