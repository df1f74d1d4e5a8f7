cd /workspace
echo content > f
tar czf f.tgz f && rm f && tar xzf f.tgz && cat f
