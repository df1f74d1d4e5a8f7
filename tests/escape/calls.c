/* Makes system calls by their numbers, without a C library between it and the kernel, and says what came of each.
 *
 *     calls NUMBER...    for each: the number and the error, or "killed SIGNAL" if the call ended its process
 *
 * Every call has arguments that no call can do anything with: a descriptor that is not open, addresses that are not
 * mapped. Each is made in a process of its own. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static long call(long number)
{
    long result;
#if defined(__x86_64__)
    register long r10 __asm__("r10") = -1;
    register long r8 __asm__("r8") = -1;
    register long r9 __asm__("r9") = -1;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(-1L), "S"(-1L), "d"(-1L), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = -1;
    register long x1 __asm__("x1") = -1;
    register long x2 __asm__("x2") = -1;
    register long x3 __asm__("x3") = -1;
    register long x4 __asm__("x4") = -1;
    register long x5 __asm__("x5") = -1;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    result = x0;
#endif
    return result;
}

/* An exit status has eight bits: errors fit, and 255 stands for no error. */
static int outcome(long number)
{
    long result = call(number);
    return result < 0 && result > -255 ? (int)-result : 255;
}

int main(int count, char **arguments)
{
    for (int at = 1; at < count; at++) {
        long number = atol(arguments[at]);
        int status;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            _exit(outcome(number));
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 1;
        if (WIFSIGNALED(status))
            printf("%ld killed %d\n", number, WTERMSIG(status));
        else
            printf("%ld %d\n", number, WEXITSTATUS(status));
    }
    return 0;
}
