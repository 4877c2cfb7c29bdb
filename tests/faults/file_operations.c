/* Faults in the file operations of a process, below one folder. Loaded with LD_PRELOAD.
 *
 * Only the C library is intercepted, which Python, PyArrow, SQLite and torch all call: unlike a patch of Python's
 * functions, it sees writes of compiled libraries, and what a process had written when it died stays half written.
 * Writes to mapped memory are not seen.
 *
 * A fault is armed by fault_arm(), or by FAULT_FOLDER, FAULT_KIND and FAULT_AT in the environment of a new process.
 * Operations that change files are counted from 1. The fault strikes at the first operation from number FAULT_AT on
 * that it can strike:
 *
 *   kill    a write is done by half, any other operation not at all, and SIGKILL ends the process
 *   short   a write is done by half and says so; once
 *   ENOSPC  no space for data and new files, from here on
 *   EROFS   nothing can be changed, from here on
 *   EIO     the operation fails; once
 *   unread  the n-th opening or reading of a file fails with EIO; once (counts reads in place of changes)
 *   none    no fault: operations are counted
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { NONE, KILL, SHORT, FULL, READ_ONLY, BROKEN, UNREAD };
enum role { READS, WRITES, GROWS, CHANGES, FLUSHES };  /* GROWS: needs space for a new file or folder */

static char folder[PATH_MAX], trace[PATH_MAX];
static enum kind kind = NONE;
static long strike_at = 0, counted = 0;
static int armed = 0, struck = 0;

static void note(const char *word, const char *operation, const char *path)
{
    char line[2 * PATH_MAX];
    int length, file;
    if (!trace[0])
        return;
    length = snprintf(line, sizeof line, "%s %s %s\n", word, operation, path);
    file = (int)syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (file >= 0) {
        syscall(SYS_write, file, line, (size_t)length);
        syscall(SYS_close, file);
    }
}

void fault_arm(const char *where, const char *name, long at, const char *record)
{
    static const char *names[] = {"none", "kill", "short", "ENOSPC", "EROFS", "EIO", "unread"};
    snprintf(folder, sizeof folder, "%s", where);
    snprintf(trace, sizeof trace, "%s", record ? record : "");
    for (int i = 0; i < 7; i++)
        if (!strcmp(name, names[i]))
            kind = (enum kind)i;
    strike_at = at;
    counted = 0;
    struck = 0;
    armed = 1;
}

long fault_count(void) { return counted; }

__attribute__((constructor)) static void arm_from_environment(void)
{
    const char *where = getenv("FAULT_FOLDER"), *name = getenv("FAULT_KIND"), *at = getenv("FAULT_AT");
    if (where && name && at)
        fault_arm(where, name, atol(at), getenv("FAULT_TRACE"));
}

/* The path of an operation, if it lies in the folder; else NULL. */
static const char *inside(int base, const char *path, char *buffer)
{
    size_t length;
    if (!armed)
        return NULL;
    if (path && path[0] == '/') {
        snprintf(buffer, PATH_MAX, "%s", path);
    } else {
        char link[64];
        ssize_t found;
        if (base == AT_FDCWD)
            snprintf(link, sizeof link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", base);
        found = syscall(SYS_readlinkat, AT_FDCWD, link, buffer, PATH_MAX - 1);
        if (found < 0)
            return NULL;
        buffer[found] = 0;
        if (path)
            snprintf(buffer + found, PATH_MAX - found, "/%s", path);
    }
    length = strlen(folder);
    return strncmp(buffer, folder, length) || (buffer[length] != '/' && buffer[length] != 0) ? NULL : buffer;
}

static int can_strike(enum role role)
{
    switch (kind) {
    case KILL: case READ_ONLY: case BROKEN: return 1;
    case SHORT: return role == WRITES;
    case FULL: return role == WRITES || role == GROWS || role == FLUSHES;
    case UNREAD: return role == READS;
    default: return 0;
    }
}

/* Count an operation. Return 0 to let it pass, an error number to refuse it, or -1 to do it by half. */
static int fate(enum role role, const char *operation, const char *path)
{
    long number;
    if (!path || (role == READS) != (kind == UNREAD))
        return 0;
    number = __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
    note("did", operation, path);
    if (number < strike_at || !can_strike(role))
        return 0;
    if (struck && kind != FULL && kind != READ_ONLY)
        return 0;
    if (!struck)
        note("struck", operation, path);
    if (kind == KILL && role != WRITES) {
        raise(SIGKILL);
    }
    if (!struck) {
        struck = 1;
        if (kind == KILL || kind == SHORT || (kind == FULL && role == WRITES))
            return -1;  /* a disk that fills takes the first part of the write that it refuses */
    }
    return kind == FULL ? ENOSPC : kind == READ_ONLY ? EROFS : EIO;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define REFUSE(error, value) do { errno = (error); return value; } while (0)
#define BEFORE(role, base, path, name, value) \
    char buffer[PATH_MAX]; \
    int saved = errno, verdict = fate(role, name, inside(base, path, buffer)); \
    if (verdict > 0) REFUSE(verdict, value); \
    errno = saved;

static ssize_t halved(int verdict, ssize_t done)
{
    if (kind == KILL && verdict < 0)
        raise(SIGKILL);
    return done;
}

ssize_t write(int file, const void *data, size_t size)
{
    BEFORE(WRITES, file, NULL, "write", -1)
    return halved(verdict, REAL(write)(file, data, verdict < 0 && size > 1 ? size / 2 : size));
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at)
{
    BEFORE(WRITES, file, NULL, "pwrite", -1)
    return halved(verdict, REAL(pwrite64)(file, data, verdict < 0 && size > 1 ? size / 2 : size, at));
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) { return pwrite64(file, data, size, at); }

ssize_t writev(int file, const struct iovec *parts, int count)
{
    BEFORE(WRITES, file, NULL, "writev", -1)
    return halved(verdict, REAL(writev)(file, parts, verdict < 0 && count > 1 ? count / 2 : count));
}

ssize_t sendfile64(int to, int from, off64_t *at, size_t size)
{
    extern ssize_t sendfile64(int, int, off64_t *, size_t);
    BEFORE(WRITES, to, NULL, "sendfile", -1)
    return halved(verdict, REAL(sendfile64)(to, from, at, verdict < 0 && size > 1 ? size / 2 : size));
}

ssize_t sendfile(int to, int from, off_t *at, size_t size) { return sendfile64(to, from, at, size); }

ssize_t read(int file, void *data, size_t size)
{
    BEFORE(READS, file, NULL, "read", -1)
    return REAL(read)(file, data, size);
}

ssize_t pread64(int file, void *data, size_t size, off64_t at)
{
    BEFORE(READS, file, NULL, "pread", -1)
    return REAL(pread64)(file, data, size, at);
}

ssize_t pread(int file, void *data, size_t size, off_t at) { return pread64(file, data, size, at); }

static int exists(int base, const char *path)
{
    struct stat about;
    return fstatat(base, path, &about, AT_SYMLINK_NOFOLLOW) == 0;
}

static enum role role_of_open(int base, const char *path, int flags)
{
    if ((flags & O_ACCMODE) == O_RDONLY && !(flags & (O_CREAT | O_TRUNC)))
        return READS;
    return (flags & O_CREAT) && !exists(base, path) ? GROWS : CHANGES;
}

int openat64(int base, const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list more;
    va_start(more, flags);
    if (flags & (O_CREAT | O_TMPFILE))
        mode = va_arg(more, mode_t);
    va_end(more);
    BEFORE(role_of_open(base, path, flags), base, path, "open", -1)
    return (int)syscall(SYS_openat, base, path, flags, mode);
}

#define MODE_OF(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

int openat(int base, const char *path, int flags, ...) { MODE_OF(flags) return openat64(base, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_OF(flags) return openat64(AT_FDCWD, path, flags, mode); }
int open(const char *path, int flags, ...) { MODE_OF(flags) return openat64(AT_FDCWD, path, flags, mode); }
int creat64(const char *path, mode_t mode) { return openat64(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat(const char *path, mode_t mode) { return creat64(path, mode); }

FILE *fopen64(const char *path, const char *mode)
{
    int reads = mode[0] == 'r' && !strchr(mode, '+');
    BEFORE(reads ? READS : exists(AT_FDCWD, path) ? CHANGES : GROWS, AT_FDCWD, path, "fopen", NULL)
    return REAL(fopen64)(path, mode);
}

FILE *fopen(const char *path, const char *mode) { return fopen64(path, mode); }

int fsync(int file) { BEFORE(FLUSHES, file, NULL, "fsync", -1) return REAL(fsync)(file); }
int fdatasync(int file) { BEFORE(FLUSHES, file, NULL, "fdatasync", -1) return REAL(fdatasync)(file); }
int ftruncate64(int file, off64_t size) { BEFORE(CHANGES, file, NULL, "ftruncate", -1) return REAL(ftruncate64)(file, size); }
int ftruncate(int file, off_t size) { return ftruncate64(file, size); }
int truncate64(const char *path, off64_t size)
{
    BEFORE(CHANGES, AT_FDCWD, path, "truncate", -1)
    return REAL(truncate64)(path, size);
}
int truncate(const char *path, off_t size) { return truncate64(path, size); }

int renameat(int from, const char *old, int to, const char *new)
{
    BEFORE(CHANGES, to, new, "rename", -1)
    return REAL(renameat)(from, old, to, new);
}
int rename(const char *old, const char *new) { return renameat(AT_FDCWD, old, AT_FDCWD, new); }

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    BEFORE(GROWS, to, new, "link", -1)
    return REAL(linkat)(from, old, to, new, flags);
}
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

int symlinkat(const char *target, int to, const char *path)
{
    BEFORE(GROWS, to, path, "symlink", -1)
    return REAL(symlinkat)(target, to, path);
}
int symlink(const char *target, const char *path) { return symlinkat(target, AT_FDCWD, path); }

int unlinkat(int base, const char *path, int flags)
{
    BEFORE(CHANGES, base, path, flags & AT_REMOVEDIR ? "rmdir" : "unlink", -1)
    return REAL(unlinkat)(base, path, flags);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int base, const char *path, mode_t mode)
{
    BEFORE(exists(base, path) ? READS : GROWS, base, path, "mkdir", -1)
    return REAL(mkdirat)(base, path, mode);
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
