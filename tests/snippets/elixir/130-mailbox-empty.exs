IO.inspect(Process.info(self(), :messages))
