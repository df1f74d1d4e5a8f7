defmodule M do
  defmacro unless_zero(x, do: block) do
    quote do
      if unquote(x) != 0, do: unquote(block)
    end
  end
end
defmodule U do
  require M
  def run(x), do: M.unless_zero(x, do: "not zero")
end
IO.inspect({U.run(1), U.run(0)})
