import signal
for number in signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGHUP:
    print(number.name, signal.getsignal(number))
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
