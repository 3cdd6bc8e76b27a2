/* A folder seen through FUSE, with files that fail on demand.
 *
 *     faultfs FOLDER MOUNT      (as fusermount3 lets it: without root too)
 *
 * MOUNT/NAME is FOLDER/NAME, and does what the text in FOLDER/NAME.fault says, from the moment it is there:
 *   read WHAT      WHAT of every read: eio, zero (0 bytes), short (a part of it, then the rest is refused),
 *                  hang (no answer until the text is gone)
 *   read at N      EIO of every read that has sector N
 *   write at N     EIO of every write that has it, of which nothing is stored
 *   write WHAT     of every write: eio, enospc, enomem, torn (a part is stored, and EIO), zero, short,
 *                  lie (nothing is stored, and success)
 *   fsync eio      every fsync and fdatasync
 *   fsync slow     all of them take 50 ms more
 *   once write WHAT …  the first one only
 * Reads that touch a range of FOLDER/NAME.bad, with lines "FIRST LENGTH" in bytes, are EIO; those that touch
 * one of FOLDER/NAME.hang have no answer until that file is gone.
 * Nothing is cached in between, so that every request of weft is one here. Each fault that was done is a line
 * in FOLDER/NAME.done. With UNIT=BYTES in the environment, what is not whole units is EINVAL, as on a device
 * with logical blocks of that size. With SERVICE=MICROSECONDS a file answers its reads and writes one after the
 * other, and each takes that long at least, whatever its size: a device slower than its client.
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 12)
#define THREADS ",max_threads=100"
#else
#define THREADS ""
#endif

static const char *folder;
static size_t unit = 1;
static unsigned service;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t busy[64] = { [0 ... 63] = PTHREAD_MUTEX_INITIALIZER };

static void path_of(char *to, const char *path, const char *end)
{
	snprintf(to, 4096, "%s%s%s", folder, path, end);
}

/* Whether KIND of a file is to fail now, and how; at a place, if it is of SECTORS from FIRST. */
static int fault_at(const char *path, const char *kind, char *what, unsigned long first_sector,
		    unsigned long sectors)
{
	char name[4096], text[64] = "", first[16] = "", second[16] = "", third[16] = "";
	FILE *file;
	int hit = 0, once;

	pthread_mutex_lock(&one);
	path_of(name, path, ".fault");
	file = fopen(name, "r");
	if (file) {
		if (fgets(text, sizeof text, file))
			sscanf(text, "%15s %15s %15s", first, second, third);
		fclose(file);
		once = !strcmp(first, "once");
		strcpy(what, once ? third : second);
		hit = !strcmp(once ? second : first, kind) && what[0];
		if (hit && !once && !strcmp(what, "at"))
			hit = strtoul(third, NULL, 10) - first_sector < sectors;
		if (hit && once)
			unlink(name);
		if (hit) {
			path_of(name, path, ".done");
			file = fopen(name, "a");
			if (file) {
				fprintf(file, "%s %s\n", kind, what);
				fclose(file);
			}
		}
	}
	pthread_mutex_unlock(&one);
	return hit;
}

/* Whether a range of a file touches one that is listed in the file with that END. */
static int listed(const char *path, const char *end, size_t len, off_t at)
{
	char name[4096];
	unsigned long long first, count;
	int hit = 0;
	FILE *file;

	path_of(name, path, end);
	file = fopen(name, "r");
	while (file && !hit && fscanf(file, "%llu %llu", &first, &count) == 2)
		hit = first < at + len && at < (off_t)(first + count);
	if (file)
		fclose(file);
	return hit;
}

/* Keeps a file busy for the time of a request. */
static void serve(int fd)
{
	struct stat stat;
	pthread_mutex_t *file;

	if (!service || fstat(fd, &stat))
		return;
	file = &busy[stat.st_ino % 64];
	pthread_mutex_lock(file);
	usleep(service);
	pthread_mutex_unlock(file);
}

static int fault(const char *path, const char *kind, char *what)
{
	return fault_at(path, kind, what, 0, 0);
}

static int do_getattr(const char *path, struct stat *stat, struct fuse_file_info *info)
{
	char name[4096];

	(void)info;
	path_of(name, path, "");
	return lstat(name, stat) ? -errno : 0;
}

static int do_open(const char *path, struct fuse_file_info *info)
{
	char name[4096];
	int fd;

	path_of(name, path, "");
	fd = open(name, (info->flags & O_ACCMODE) | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	info->fh = fd;
	info->direct_io = 1;
	return 0;
}

static int do_release(const char *path, struct fuse_file_info *info)
{
	(void)path;
	close(info->fh);
	return 0;
}

static int do_read(const char *path, char *into, size_t len, off_t at, struct fuse_file_info *info)
{
	char what[16], name[4096];
	ssize_t done;

	if (at % unit || len % unit)
		return -EINVAL;
	if (listed(path, ".bad", len, at))
		return -EIO;
	while (listed(path, ".hang", len, at))
		usleep(20000);
	if (fault_at(path, "read", what, at / 512, (len + 511) / 512)) {
		if (!strcmp(what, "eio") || !strcmp(what, "at"))
			return -EIO;
		path_of(name, path, ".fault");
		while (!strcmp(what, "hang") && !access(name, F_OK))
			usleep(20000);
		if (!strcmp(what, "zero"))
			return 0;
		if (!strcmp(what, "short")) {
			if (len <= 4096)
				return -EIO;
			len = len / 2 / 512 * 512;
		}
	}
	serve(info->fh);
	done = pread(info->fh, into, len, at);
	return done < 0 ? -errno : done;
}

static int do_write(const char *path, const char *from, size_t len, off_t at, struct fuse_file_info *info)
{
	char what[16];
	ssize_t done;
	size_t part = len / 2 / 512 * 512;

	if (at % unit || len % unit)
		return -EINVAL;
	if (fault_at(path, "write", what, at / 512, (len + 511) / 512)) {
		if (!strcmp(what, "eio") || !strcmp(what, "at"))
			return -EIO;
		if (!strcmp(what, "enospc"))
			return -ENOSPC;
		if (!strcmp(what, "enomem"))
			return -ENOMEM;
		if (!strcmp(what, "zero"))
			return 0;
		if (!strcmp(what, "lie"))
			return len;
		if (!strcmp(what, "torn"))
			return pwrite(info->fh, from, part, at) < 0 ? -errno : -EIO;
		if (!strcmp(what, "short"))
			len = part ? part : len;
	}
	serve(info->fh);
	done = pwrite(info->fh, from, len, at);
	return done < 0 ? -errno : done;
}

static int do_fsync(const char *path, int data, struct fuse_file_info *info)
{
	char what[16];

	if (fault(path, "fsync", what)) {
		if (strcmp(what, "slow"))
			return -EIO;
		usleep(50000);
	}
	return (data ? fdatasync(info->fh) : fsync(info->fh)) ? -errno : 0;
}

static const struct fuse_operations operations = {
	.getattr = do_getattr,
	.open = do_open,
	.release = do_release,
	.read = do_read,
	.write = do_write,
	.fsync = do_fsync,
};

int main(int count, char **arguments)
{
	/* Requests that hang leave threads to the others. */
	char *given[] = { arguments[0], "-f", "-o", "attr_timeout=0,entry_timeout=0" THREADS, arguments[2], NULL };

	if (count != 3)
		return 2;
	folder = realpath(arguments[1], NULL);
	if (getenv("UNIT"))
		unit = atoi(getenv("UNIT"));
	if (getenv("SERVICE"))
		service = atoi(getenv("SERVICE"));
	return folder ? fuse_main(5, given, &operations, NULL) : 1;
}
