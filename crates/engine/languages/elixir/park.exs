# Parks an Elixir that was started with its real command line, until its one request arrives.
#
# The shell script `elixir` puts ELIXIR_ERL_OPTIONS before its own start, so with
#
#     -eval application:ensure_all_started(elixir),'Elixir.Code':require_file(<<"…/park.exs">>),'Elixir.Ringfence.Park':main()
#
# in there (without a space) this runs first. It blocks, applies the request, and returns: Elixir's command line then reads
# its arguments and requires the script as it would have done anyway, so errors, exit codes and `System.at_exit/1` are its
# own.
#
# Descriptor 3 carries the request up to end of file: `KEY=VALUE\0` for each variable, one lone `\0`, the code.
# Descriptor 4 takes the line `ready`. Both are closed before the code runs. The exit status is the kernel's.

defmodule Ringfence.Park do
  # What most programs use, since modules are loaded when first called: compiler, collections, text, errors.
  # It draws no random number, starts no process and leaves nothing in the process dictionary.
  @warm_up ~S"""
  defmodule Ringfence.WarmUp do
    defstruct name: "x", count: 0
    @table %{a: 1, b: [2, 3.5], c: {:ok, nil}}
    def run(device) do
      line = Enum.map_join(1..3, ", ", fn i -> "#{i * 2}:#{inspect(@table)}" end)
      IO.puts(device, line)
      IO.inspect(device, %__MODULE__{count: length(String.split("a b c"))}, label: "warm")
      for {k, v} <- @table, is_integer(v), into: %{}, do: {k, v + 1}
      Enum.reduce([3, 1, 2], 0, &(&1 + &2)) |> Integer.to_string() |> String.pad_leading(4, "0")
      Enum.sort_by(["bb", "a"], &String.length/1) |> Enum.with_index() |> Enum.group_by(&elem(&1, 1))
      Stream.map(1..3, & &1) |> Stream.filter(&(rem(&1, 2) == 0)) |> Enum.to_list()
      Keyword.get([a: 1], :a) && Map.update(%{}, :k, 1, &(&1 + 1)) && MapSet.new([1])
      Regex.replace(~r/(\w)\d+/, "a12 b3", "\\1") |> String.upcase() |> String.replace("A", "z") |> String.trim()
      with {:ok, n} <- {:ok, Float.round(1.25, 1)}, do: n
    end
  end
  {:ok, device} = StringIO.open("")
  Ringfence.WarmUp.run(device)
  try do
    raise ArgumentError, "warm"
  rescue
    error -> IO.puts(device, Exception.format(:error, error, __STACKTRACE__) <> Exception.format_banner(:exit, :normal))
  end
  StringIO.close(device)
  IO.write("")
  IO.write(:stderr, "")
  """

  @more [
    Agent, Atom, Base, Bitwise, Calendar.ISO, Code.Identifier, Date, DateTime, Exception, File, Function, GenServer,
    Inspect.Algebra, Kernel.CLI, Kernel.ErrorHandler, Kernel.Typespec, Kernel.Utils, NaiveDateTime, Path, Process, Range, String.Chars,
    Supervisor, System, Task, Task.Supervised, Time, Tuple, URI,
    :calendar, :gen, :gen_server, :io_lib_format, :math, :proc_lib, :queue, :rand, :sets, :timer
  ]

  def main do
    :os.unsetenv(~c"ELIXIR_ERL_OPTIONS")
    _ = :application.start(:logger)
    script = :init.get_plain_arguments() |> List.last() |> List.to_string()

    # Once: code is compiled to machine code when it is loaded, so doing it again makes nothing faster.
    start(script, <<0, @warm_up>>)
    Code.require_file(script)
    Code.unrequire_files([script])
    :code.delete(Ringfence.WarmUp)
    :code.purge(Ringfence.WarmUp)

    File.rm!(script)
    Code.unrequire_files([__ENV__.file])
    Enum.each(@more, &:code.ensure_loaded/1)
    Logger.flush()

    # Registered first, so it runs last.
    System.at_exit(&exit_at_once/1)
    :erlang.garbage_collect()
    # A file, not a port: closing a port leaves its descriptor open.
    {:ok, report} = :prim_file.file_desc_to_ref(4, [:raw, :write])
    :ok = :prim_file.write(report, "ready\n")
    :ok = :prim_file.close(report)
    {:ok, requests} = :prim_file.file_desc_to_ref(3, [:raw, :read, :binary])
    request = read_to_end(requests, [])
    :ok = :prim_file.close(requests)
    start(script, request)
  end

  # Applies the request and leaves the rest to Elixir.
  defp start(script, request) do
    {variables, code} = take_apart(request)

    for variable <- variables do
      [name, value] = :binary.split(variable, "=")
      System.put_env(name, value)
    end

    with {:error, reason} <- :file.write_file(script, code, [:raw]) do
      IO.puts(:stderr, "cannot write #{script}: #{reason}")
      System.halt(1)
    end
  end

  defp take_apart(<<0, code::binary>>), do: {[], code}

  # Each variable ends in a NUL and is not empty, so the first empty one ends them all.
  defp take_apart(request) do
    case :binary.split(request, <<0, 0>>) do
      [variables, code] -> {:binary.split(variables, <<0>>, [:global]), code}
      _ -> :erlang.halt(1, flush: false)  # The slot was given up.
    end
  end

  defp read_to_end(file, parts) do
    case :prim_file.read(file, 65_536) do
      {:ok, data} -> read_to_end(file, [parts | data])
      :eof -> IO.iodata_to_binary(parts)
    end
  end

  # Elixir halts next, and waits for ports to be flushed. Where there is nothing to flush this is the same, sooner. A
  # program that does more at its exit, or has output under way, goes on as ever.
  defp exit_at_once(status) do
    if Process.whereis(Logger), do: Logger.flush()

    if status >= 0 and :elixir_config.get(:at_exit) == [] and Enum.all?(Port.list(), &flushed?/1) do
      :erlang.halt(status, flush: false)
    end
  end

  defp flushed?(port), do: Port.info(port, :queue_size) in [nil, {:queue_size, 0}]
end
