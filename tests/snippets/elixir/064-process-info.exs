IO.inspect({Process.info(self(), :message_queue_len), Process.info(self(), :trap_exit), Process.info(self(), :priority), Process.info(self(), :registered_name)})
