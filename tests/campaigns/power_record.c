/* Records what a process writes below a folder, for power.py: every write with its bytes, every sync, every change of a
 * name, in one order. Preloaded (LD_PRELOAD) in front of libc; POWER_ROOT names the folder, POWER_LOG the record.
 *
 * One lock is held over each call and its entry, so the record's order is the order in which things happened. A call
 * that failed leaves no entry. power_disk.py reads the entries: a header, a path, a second path or the bytes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNCED_WRITE, TRUNCATE, SYNC, CREATE, MKDIR, RENAME, UNLINK };

struct header {
    uint32_t kind, path_size;
    uint64_t file, offset, data_size;
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;
static char root[PATH_MAX];
static size_t root_size;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("POWER_ROOT"), *log = getenv("POWER_LOG");
    if (folder == NULL || log == NULL || realpath(folder, root) == NULL) return;
    root_size = strlen(root);
    record = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(const void *bytes, size_t size) {
    const char *from = bytes;
    while (size > 0) {
        ssize_t done = syscall(SYS_write, record, from, size);
        if (done < 0 && errno != EINTR) abort();
        if (done > 0) from += done, size -= (size_t)done;
    }
}

static void note(uint32_t kind, const char *path, uint64_t file, uint64_t offset, const void *data, size_t size) {
    int saved = errno;
    struct header head = {kind, (uint32_t)strlen(path), file, offset, size};
    put(&head, sizeof head);
    put(path, head.path_size);
    put(data, size);
    errno = saved;
}

/* The path below the folder, "" for the folder itself; NULL for what is not ours. */
static const char *below(const char *path) {
    if (record < 0 || strncmp(path, root, root_size) != 0) return NULL;
    if (path[root_size] == 0) return "";
    return path[root_size] == '/' ? path + root_size + 1 : NULL;
}

static const char *path_of_fd(int fd, char *into) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, into, PATH_MAX - 1);
    if (record < 0 || size < 0) return NULL;
    into[size] = 0;
    /* A file that lost its name is still written to. */
    return below(into);
}

/* The folder is resolved, the last part is not: it may not be there yet, or no more. */
static const char *path_at(int folder, const char *path, char *into) {
    char full[2 * PATH_MAX], parent[PATH_MAX];
    if (record < 0) return NULL;
    if (path[0] == '/' ) snprintf(full, sizeof full, "%s", path);
    else {
        char link[64];
        if (folder == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t size = readlink(link, parent, sizeof parent - 1);
        if (size < 0) return NULL;
        parent[size] = 0;
        snprintf(full, sizeof full, "%s/%s", parent, path);
    }
    char *last = strrchr(full, '/');
    *last++ = 0;
    if (realpath(full[0] ? full : "/", parent) == NULL) return NULL;
    if (snprintf(into, PATH_MAX, "%s/%s", parent, last) >= PATH_MAX) return NULL;
    return below(into);
}

static uint64_t number_of(int fd) {
    struct stat stat;
    return fstat(fd, &stat) == 0 ? stat.st_ino : 0;
}

/* -- bytes ------------------------------------------------------------------------------------------- */

static void note_write(int fd, const char *path, off_t offset, const struct iovec *parts, int count, ssize_t done) {
    int flags = fcntl(fd, F_GETFL);
    int synced = (flags & O_DSYNC) != 0;
    uint64_t file = number_of(fd);
    for (int i = 0; i < count && done > 0; i++) {
        size_t size = parts[i].iov_len < (size_t)done ? parts[i].iov_len : (size_t)done;
        note(synced ? SYNCED_WRITE : WRITE, path, file, (uint64_t)offset, parts[i].iov_base, size);
        offset += (off_t)size;
        done -= (ssize_t)size;
    }
}

/* `offset` -1: where the file stands. */
static ssize_t writing(int fd, const struct iovec *parts, int count, off_t offset) {
    char buffer[PATH_MAX];
    const char *path = path_of_fd(fd, buffer);
    if (path == NULL)
        return offset < 0 ? REAL(writev)(fd, parts, count) : REAL(pwritev)(fd, parts, count, offset);
    pthread_mutex_lock(&turn);
    off_t start = offset;
    if (offset < 0) start = lseek(fd, 0, (fcntl(fd, F_GETFL) & O_APPEND) ? SEEK_END : SEEK_CUR);
    ssize_t done = offset < 0 ? REAL(writev)(fd, parts, count) : REAL(pwritev)(fd, parts, count, offset);
    if (done > 0) note_write(fd, path, start, parts, count, done);
    pthread_mutex_unlock(&turn);
    return done;
}

ssize_t write(int fd, const void *bytes, size_t size) {
    struct iovec part = {(void *)bytes, size};
    return writing(fd, &part, 1, -1);
}
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    struct iovec part = {(void *)bytes, size};
    return writing(fd, &part, 1, offset);
}
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset) { return pwrite(fd, bytes, size, offset); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return writing(fd, parts, count, -1); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return writing(fd, parts, count, offset); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return writing(fd, parts, count, offset);
}

int ftruncate(int fd, off_t size) {
    char buffer[PATH_MAX];
    const char *path = path_of_fd(fd, buffer);
    pthread_mutex_lock(&turn);
    int result = REAL(ftruncate)(fd, size);
    if (path != NULL && result == 0) note(TRUNCATE, path, number_of(fd), (uint64_t)size, "", 0);
    pthread_mutex_unlock(&turn);
    return result;
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

static int syncing(int fd, int (*real)(int)) {
    char buffer[PATH_MAX];
    const char *path = path_of_fd(fd, buffer);
    if (path == NULL) return real(fd);
    pthread_mutex_lock(&turn);
    int result = real(fd);
    if (result == 0) note(SYNC, path, number_of(fd), 0, "", 0);
    pthread_mutex_unlock(&turn);
    return result;
}
int fsync(int fd) { return syncing(fd, REAL(fsync)); }
int fdatasync(int fd) { return syncing(fd, REAL(fdatasync)); }

/* -- names ------------------------------------------------------------------------------------------- */

static int opening(int folder, const char *name, int flags, mode_t mode) {
    char buffer[PATH_MAX];
    int (*real)(int, const char *, int, ...) = REAL(openat);
    const char *path = (flags & (O_CREAT | O_TRUNC)) ? path_at(folder, name, buffer) : NULL;
    if (path == NULL) return real(folder, name, flags, mode);
    pthread_mutex_lock(&turn);
    struct stat stat;
    int there = fstatat(folder, name, &stat, 0) == 0;
    int fd = real(folder, name, flags, mode);
    if (fd >= 0 && !there) note(CREATE, path, number_of(fd), 0, "", 0);
    if (fd >= 0 && there && (flags & O_TRUNC)) note(TRUNCATE, path, number_of(fd), 0, "", 0);
    pthread_mutex_unlock(&turn);
    return fd;
}

#define OPENING(folder)                                   \
    va_list rest;                                         \
    va_start(rest, flags);                                \
    mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                         \
    return opening(folder, name, flags, mode)

int open(const char *name, int flags, ...) { OPENING(AT_FDCWD); }
int open64(const char *name, int flags, ...) { OPENING(AT_FDCWD); }
int openat(int folder, const char *name, int flags, ...) { OPENING(folder); }
int openat64(int folder, const char *name, int flags, ...) { OPENING(folder); }

int mkdirat(int folder, const char *name, mode_t mode) {
    char buffer[PATH_MAX];
    const char *path = path_at(folder, name, buffer);
    pthread_mutex_lock(&turn);
    int result = REAL(mkdirat)(folder, name, mode);
    if (path != NULL && result == 0) {
        struct stat stat;
        fstatat(folder, name, &stat, 0);
        note(MKDIR, path, stat.st_ino, 0, "", 0);
    }
    pthread_mutex_unlock(&turn);
    return result;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int renameat(int folder, const char *name, int new_folder, const char *new_name) {
    char buffer[PATH_MAX], new_buffer[PATH_MAX];
    const char *path = path_at(folder, name, buffer), *new_path = path_at(new_folder, new_name, new_buffer);
    pthread_mutex_lock(&turn);
    int result = REAL(renameat)(folder, name, new_folder, new_name);
    if (result == 0 && path != NULL && new_path != NULL) note(RENAME, path, 0, 0, new_path, strlen(new_path));
    pthread_mutex_unlock(&turn);
    return result;
}
int rename(const char *name, const char *new_name) { return renameat(AT_FDCWD, name, AT_FDCWD, new_name); }

int unlinkat(int folder, const char *name, int flags) {
    char buffer[PATH_MAX];
    const char *path = path_at(folder, name, buffer);
    pthread_mutex_lock(&turn);
    int result = REAL(unlinkat)(folder, name, flags);
    if (result == 0 && path != NULL) note(UNLINK, path, 0, 0, "", 0);
    pthread_mutex_unlock(&turn);
    return result;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
