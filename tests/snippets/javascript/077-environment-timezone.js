console.log(new Date(0).getHours(), new Date(0).toString(), Intl.DateTimeFormat().resolvedOptions().timeZone);
