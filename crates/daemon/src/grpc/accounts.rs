//! Users and groups of this machine, as its files tell.

use std::{fs, path::PathBuf};

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) home: PathBuf,
}

/// Returns the user of this number.
pub(crate) fn user(number: u32) -> Option<User> {
    find_user(&fs::read_to_string("/etc/passwd").ok()?, number)
}

/// Returns the number of a group that is given by number or name.
pub fn group_number(group: &str) -> Option<u32> {
    if let Ok(number) = group.parse() {
        return Some(number);
    }
    find_group(&fs::read_to_string("/etc/group").ok()?, group)
}

/// Tells whether a user is among the members of a group, beside those who have it as their first.
pub(crate) fn is_member(user: &str, group: u32) -> bool {
    fs::read_to_string("/etc/group").is_ok_and(|groups| is_listed(&groups, user, group))
}

fn find_user(passwd: &str, number: u32) -> Option<User> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let &[name, _, uid, _, _, home, ..] = fields.as_slice() else { return None };
        let found = User { name: name.to_owned(), home: home.into() };
        (uid.parse() == Ok(number)).then_some(found)
    })
}

fn find_group(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

fn is_listed(groups: &str, user: &str, group: u32) -> bool {
    groups.lines().any(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let &[_, _, number, members] = fields.as_slice() else { return false };
        number.parse() == Ok(group) && members.split(',').any(|member| member == user)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nbad line\nme:x:1000:1000:,,,:/home/me:/sh\n";
    const GROUPS: &str = "root:x:0:\nbox:x:77:me,you\nboxer:x:78:other\n";

    #[test]
    fn users_and_groups_are_found_as_a_whole() {
        let me = User { name: "me".into(), home: "/home/me".into() };
        assert_eq!(find_user(PASSWD, 1000), Some(me));
        assert_eq!(find_user(PASSWD, 100), None);
        assert_eq!(find_group(GROUPS, "box"), Some(77));
        assert_eq!(find_group(GROUPS, "bo"), None);
        assert!(is_listed(GROUPS, "me", 77) && is_listed(GROUPS, "you", 77));
        assert!(!is_listed(GROUPS, "m", 77) && !is_listed(GROUPS, "me", 78));
        assert_eq!(group_number("77"), Some(77));
    }
}
