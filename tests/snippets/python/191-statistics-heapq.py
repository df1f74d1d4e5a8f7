import statistics, heapq, bisect
print(statistics.mean([1, 2, 4]), statistics.median([3, 1, 2]), heapq.nsmallest(2, [5, 1, 4]), bisect.bisect([1, 3], 2))
