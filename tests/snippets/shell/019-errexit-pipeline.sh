set -eo pipefail
false | cat
echo never
