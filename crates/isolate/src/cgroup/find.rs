//! Which cgroup hierarchies are mounted, and where this process is in each.

/// A hierarchy, and the directory of this process in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mounted {
    /// The v1 controllers of the hierarchy; `None` for v2.
    pub(super) controllers: Option<Vec<String>>,
    pub(super) path: String,
}

/// Reads `/proc/self/mountinfo` and `/proc/self/cgroup` together.
pub(super) fn mounted(mountinfo: &str, cgroup: &str) -> Vec<Mounted> {
    mountinfo.lines().filter_map(|line| read_mount(line, cgroup)).collect()
}

/// One line of mountinfo: `36 35 98:0 /root /mount/point options - type source super,options`.
fn read_mount(line: &str, cgroup: &str) -> Option<Mounted> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, mount_point) = (fields.next()?, fields.next()?);
    let mut fields = after.split(' ');
    let controllers = match fields.next()? {
        "cgroup2" => None,
        "cgroup" => {
            let options = fields.nth(1)?;
            let is_controller = |option: &&str| !matches!(*option, "rw" | "ro" | "xattr");
            Some(options.split(',').filter(is_controller).map(str::to_owned).collect())
        }
        _ => return None,
    };
    let own = own_path(cgroup, controllers.as_deref())?;
    let below = own.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
    let path = format!("{mount_point}{}", below.trim_end_matches('/'));
    Some(Mounted { controllers, path })
}

/// One line of `/proc/self/cgroup`: `4:memory:/path`, or `0::/path` for v2.
fn own_path<'a>(cgroup: &'a str, controllers: Option<&[String]>) -> Option<&'a str> {
    cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match controllers {
            None => id == "0" && names.is_empty(),
            Some(wanted) => {
                id != "0" && names.split(',').any(|name| wanted.iter().any(|w| w == name))
            }
        };
        is_it.then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v1(controllers: &[&str], path: &str) -> Mounted {
        let controllers = Some(controllers.iter().map(ToString::to_string).collect());
        Mounted { controllers, path: path.into() }
    }

    #[test]
    fn a_unified_tree_is_found_with_the_place_of_this_process() {
        let found = mounted(
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n\
             24 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n",
            "0::/system.slice/ringfence.service\n",
        );
        let path = "/sys/fs/cgroup/system.slice/ringfence.service".into();
        assert_eq!(found, [Mounted { controllers: None, path }]);
    }

    #[test]
    fn one_tree_per_controller_is_found_and_those_mounted_together() {
        let found = mounted(
            "33 31 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             34 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            "4:memory:/process_api/x\n2:cpu,cpuacct:/\n",
        );
        let expected = [
            v1(&["cpu", "cpuacct"], "/sys/fs/cgroup/cpu,cpuacct"),
            v1(&["memory"], "/sys/fs/cgroup/memory/process_api/x"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn both_kinds_side_by_side_are_found() {
        let found = mounted(
            "34 31 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
             35 31 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            "8:pids:/a\n0::/\n",
        );
        let unified = Mounted { controllers: None, path: "/sys/fs/cgroup/unified".into() };
        assert_eq!(found, [v1(&["pids"], "/sys/fs/cgroup/pids/a"), unified]);
    }

    #[test]
    fn in_a_container_the_mount_shows_only_a_part_of_the_tree() {
        let found = mounted(
            "34 31 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
            "4:memory:/docker/abc/own\n",
        );
        assert_eq!(found, [v1(&["memory"], "/sys/fs/cgroup/memory/own")]);
    }
}
