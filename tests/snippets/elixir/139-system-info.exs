IO.inspect({System.version() != "", System.otp_release() != "", System.schedulers_online() == :erlang.system_info(:schedulers_online), :erlang.system_info(:process_limit)})
