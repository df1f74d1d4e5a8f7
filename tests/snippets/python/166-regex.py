import re
print(re.findall(r"(\w+)@(\w+)", "a@b c@d"), re.sub(r"\d+", lambda m: str(int(m[0]) * 2), "1 22"))
re.compile("(")
