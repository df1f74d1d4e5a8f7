defmodule Base do
  defmacro __using__(opts) do
    quote do
      import String, only: [upcase: 1]
      def opts, do: unquote(opts)
      def shout(x), do: upcase(x)
    end
  end
end
defmodule User do
  use Base, level: 3
end
IO.inspect({User.opts(), User.shout("x")})
