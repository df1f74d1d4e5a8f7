import site, sys
print(site.ENABLE_USER_SITE, site.USER_SITE, site.USER_BASE, "usercustomize" in sys.modules)
print(exit, quit, copyright.__class__.__name__)
