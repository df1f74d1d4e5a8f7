require Logger
Logger.configure_backend(:console, format: "$level $message\n", colors: [enabled: false])
Logger.warn("careful")
Logger.info("informed")
