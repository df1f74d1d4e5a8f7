for x in apple 42 ""; do
  case $x in
    a*) echo fruit ;;
    [0-9]*) echo number ;;
    *) echo other ;;
  esac
done
