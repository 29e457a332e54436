/* The program that a hook starts: what client.py does, in a few milliseconds. Change both together.
 *
 * It hands standard input to the resident process of the folder, prints the answer, and ends with its exit code. It
 * never looks into the message, and never hangs: all it waits for has one end. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKED = 2, LONGEST_HEADER = 64, PIECE = 1 << 16, PAUSE_NANOSECONDS = 5000000 };
#define LARGEST ((size_t)256 * 1024 * 1024)
#define NOT_UNDERSTOOD "its process for this folder answered something that is not understood"

static double limit_seconds = 30, end_seconds;
static int blocks;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double left(void)
{
    double rest = end_seconds - now();
    return rest > 0 ? rest : 0;
}

static void print(int descriptor, const char *content, size_t size)
{
    while (size > 0) {
        ssize_t written = write(descriptor, content, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return; /* nobody reads it; how the hook ends still counts */
        content += written;
        size -= (size_t)written;
    }
}

/* There is no answer: say why, and end as the hook asks for. */
static _Noreturn void give_up(const char *format, ...)
{
    static const char see[] = "Run `holdfast guard status` in this folder to see more.";
    char reason[512], said[1536];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    if (blocks)
        snprintf(said, sizeof said,
                 "Holdfast could not take a checkpoint, so this tool was not run: %s. %s To let tools run without "
                 "protection, run `holdfast config set agents.on-failure warn` and then `holdfast agents install`.\n",
                 reason, see);
    else
        snprintf(said, sizeof said, "Holdfast does not protect this folder at the moment: %s. %s\n", reason, see);
    print(2, said, strlen(said));
    _exit(blocks ? BLOCKED : 0);
}

static _Noreturn void give_up_late(void)
{
    give_up("its process for this folder did not answer within %g s", limit_seconds);
}

static void *memory(void *old, size_t size)
{
    void *found = realloc(old, size ? size : 1);
    if (found == NULL)
        give_up("there is not enough memory");
    return found;
}

static char *joined(const char *first, const char *second)
{
    size_t size = strlen(first);
    char *path = memory(NULL, size + strlen(second) + 2);
    strcpy(path, first);
    if (size > 0 && first[size - 1] != '/')
        strcat(path, "/");
    return strcat(path, second);
}

static char *current_folder(void)
{
    char *found = getcwd(NULL, 0);
    if (found == NULL)
        give_up("the folder cannot be found: %s", strerror(errno));
    return found;
}

static char *repository_around(char *current)
{
    char *folder = strdup(current);
    if (folder == NULL)
        return current;
    for (;;) {
        struct stat status;
        char *mark = joined(folder, ".git");
        int is_there = stat(mark, &status) == 0;
        char *slash = strrchr(folder, '/');
        free(mark);
        if (is_there)
            return folder;
        if (slash == NULL || strcmp(folder, "/") == 0)
            return current;
        slash[slash == folder] = '\0';
    }
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* The repository around the folder that the agent works in, which it names or which is the current one; or that. */
static char *folder_found(void)
{
    const char *named = variable("CLAUDE_PROJECT_DIR");
    if (named == NULL)
        named = variable("GEMINI_PROJECT_DIR");
    char *start = named != NULL ? realpath(named, NULL) : current_folder();
    char *real = start != NULL ? realpath(repository_around(start), NULL) : NULL;
    if (real == NULL)
        give_up("the folder cannot be found: %s", strerror(errno));
    return real;
}

static char *home_found(void)
{
    const char *home = variable("HOLDFAST_HOME"), *state = variable("XDG_STATE_HOME"), *user = variable("HOME");
    if (home != NULL)
        return joined(home[0] == '/' ? "" : current_folder(), home);
    if (state != NULL && state[0] == '/')
        return joined(state, "holdfast");
    if (user == NULL || user[0] != '/') {
        struct passwd *known = getpwuid(getuid());
        user = known != NULL ? known->pw_dir : "/";
    }
    return joined(user, ".local/state/holdfast");
}

static void name_socket(const char *folder, char *name, size_t size)
{
    uint64_t number = 0xCBF29CE484222325u;
    for (; *folder != '\0'; folder++)
        number = (number ^ (unsigned char)*folder) * 0x100000001B3u;
    snprintf(name, size, "%016llx.sock", (unsigned long long)number);
}

/* All of standard input behind room for the header; nothing if it is closed. */
static char *all_input(size_t room, size_t *size)
{
    size_t capacity = room + PIECE;
    char *content = memory(NULL, capacity);
    *size = 0;
    for (;;) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        int ready = poll(&input, 1, (int)(left() * 1000 + 0.999));
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready == 0)
            give_up("the agent did not end its message");
        if (capacity - room - *size < PIECE)
            content = memory(content, capacity *= 2);
        ssize_t got = read(0, content + room + *size, PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return content;
        *size += (size_t)got;
        if (*size > LARGEST)
            give_up("the agent's message is too large");
    }
}

static void limit_waiting(int connection, int option)
{
    double rest = left();
    if (rest < 0.001)
        rest = 0.001;
    struct timeval time = {.tv_sec = (time_t)rest, .tv_usec = (suseconds_t)((rest - (double)(time_t)rest) * 1e6)};
    setsockopt(connection, SOL_SOCKET, option, &time, sizeof time);
}

/* A connection, or -1 if no process listens. The address is the name in the current folder: a path may be longer than
 * an address can be. */
static int connect_to(const char *sockets, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), result = -1;
    strcpy(address.sun_path, name);
    if (connection >= 0 && chdir(sockets) == 0) {
        limit_waiting(connection, SO_SNDTIMEO);
        while ((result = connect(connection, (struct sockaddr *)&address, sizeof address)) < 0 && errno == EINTR)
            ;
    }
    if (result == 0)
        return connection;
    int error = errno;
    close(connection);
    if (error == ENOENT || error == ECONNREFUSED)
        return -1;
    if (error == EAGAIN)
        give_up_late();
    give_up("its socket for this folder cannot be used: %s", strerror(error));
}

/* Start a program that outlives this process, and the terminal. */
static void start(const char *python, const char *folder)
{
    char *words[] = {(char *)python, "-P", "-m", "holdfast.guard.process", (char *)folder, NULL};
    int status;
    pid_t child = fork();
    if (child > 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    if (child != 0)
        return;
    setsid();
    if (fork() == 0) {
        int null = open("/dev/null", O_RDWR);
        if (chdir("/") == 0 && null >= 0) {
            for (int each = 0; each < 3; each++)
                dup2(null, each);
            for (int each = 3; each < 256; each++)
                close(each);
            execv(python, words);
        }
    }
    _exit(127);
}

static int connection_to(const char *sockets, const char *name, const char *python, const char *folder, double wait)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NANOSECONDS};
    int connection = connect_to(sockets, name);
    if (connection >= 0)
        return connection;
    if (python == NULL || python[0] == '\0')
        give_up("no process listens for this folder, and the hook names no Python to start one with");
    start(python, folder);
    for (double end = now() + (wait < left() ? wait : left()); now() < end;) {
        nanosleep(&pause, NULL);
        if ((connection = connect_to(sockets, name)) >= 0)
            return connection;
    }
    give_up("its process for this folder did not start");
}

static void send_all(int connection, const char *content, size_t size)
{
    while (size > 0) {
        limit_waiting(connection, SO_SNDTIMEO);
        ssize_t sent = send(connection, content, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
            return; /* it may have answered already */
        if (sent < 0)
            give_up_late();
        content += sent;
        size -= (size_t)sent;
    }
}

/* The three numbers of a header, which are digits with one space between them. */
static int are_sizes(const char *header, size_t size, unsigned long long numbers[3])
{
    size_t place = 0;
    for (int each = 0; each < 3; each++) {
        size_t begin = place;
        numbers[each] = 0;
        for (; place < size && header[place] >= '0' && header[place] <= '9'; place++)
            numbers[each] = numbers[each] * 10 + (unsigned long long)(header[place] - '0');
        if (place == begin || place - begin > 10 || (each < 2 ? place >= size || header[place++] != ' ' : place != size))
            return 0;
    }
    return numbers[0] <= 255 && numbers[1] + numbers[2] <= LARGEST;
}

/* Prints the answer and returns its exit code; -1 if the process ended before it said anything. */
static int receive(int connection)
{
    size_t capacity = PIECE * 2, got = 0, begin = 0, total = 0;
    char *content = memory(NULL, capacity);
    unsigned long long numbers[3] = {0, 0, 0};
    while (begin == 0 || got - begin < total) {
        if (capacity - got < PIECE)
            content = memory(content, capacity *= 2);
        limit_waiting(connection, SO_RCVTIMEO);
        ssize_t size = recv(connection, content + got, PIECE, 0);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0 && errno == EAGAIN)
            give_up_late();
        if (size <= 0 && got == 0)
            return -1;
        if (size <= 0)
            give_up(NOT_UNDERSTOOD);
        got += (size_t)size;
        if (begin == 0) {
            char *end = memchr(content, '\n', got < LONGEST_HEADER ? got : LONGEST_HEADER);
            if (end == NULL && got < LONGEST_HEADER)
                continue;
            if (end == NULL || !are_sizes(content, (size_t)(end - content), numbers))
                give_up(NOT_UNDERSTOOD);
            begin = (size_t)(end - content) + 1;
            total = (size_t)(numbers[1] + numbers[2]);
        }
        if (left() == 0)
            give_up_late();
    }
    print(1, content + begin, (size_t)numbers[1]);
    print(2, content + begin + numbers[1], (size_t)numbers[2]);
    return (int)numbers[0];
}

/* A number of seconds, written in digits and at most one point. */
static double seconds(const char *text, double otherwise)
{
    size_t digits = 0, points = 0, size = text != NULL ? strlen(text) : 0;
    for (size_t each = 0; each < size; each++) {
        digits += text[each] >= '0' && text[each] <= '9';
        points += text[each] == '.';
    }
    return digits > 0 && digits < 10 && points <= 1 && digits + points == size ? strtod(text, NULL) : otherwise;
}

int main(int count, char **words)
{
    const char *agent = "-", *python = NULL;
    char name[32], header[512];
    size_t size;
    for (int each = 1; each + 1 < count; each += 2) {
        if (strcmp(words[each], "--agent") == 0)
            agent = words[each + 1];
        else if (strcmp(words[each], "--python") == 0)
            python = words[each + 1];
        else if (strcmp(words[each], "--on-failure") == 0)
            blocks = strcmp(words[each + 1], "block") == 0;
        else if (strcmp(words[each], "--limit") == 0)
            limit_seconds = seconds(words[each + 1], limit_seconds);
    }
    end_seconds = now() + limit_seconds;
    signal(SIGPIPE, SIG_IGN);
    /* What is opened must not take the place of a closed standard stream. */
    for (int each = 0; each < 3;)
        if ((each = open("/dev/null", O_RDWR | O_CLOEXEC)) < 0)
            break;

    char *content = all_input(sizeof header, &size);
    char *folder = folder_found(), *sockets = joined(home_found(), "guards");
    name_socket(folder, name, sizeof name);
    int begun = snprintf(header, sizeof header, "HOOK %s %zu\n", agent, size);
    if (begun < 0 || (size_t)begun >= sizeof header)
        give_up("the name of the agent is too long");
    char *request = content + sizeof header - begun;
    memcpy(request, header, (size_t)begun);

    double wait = seconds(getenv("HOLDFAST_GUARD_WAIT"), 5);
    for (int tries = 0; tries < 2; tries++) {
        int connection = connection_to(sockets, name, python, folder, wait);
        send_all(connection, request, (size_t)begun + size);
        int code = receive(connection);
        close(connection);
        if (code >= 0)
            return code;
    }
    give_up("its process for this folder ended before it answered");
}
