throw(:ball)
