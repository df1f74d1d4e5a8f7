require Logger
Logger.configure_backend(:console, format: "$level $message\n", colors: [enabled: false])
for i <- 1..50, do: Logger.error("line #{i}")
