//! The cgroup of a tenant, in which its slots or sandboxes have theirs. Tenants have equal shares of the processors, and
//! one tenant alone cannot use all the memory and processes that a server has for all of them.

use rustix::{
    fs::{Mode, mkdirat},
    io::Errno,
};

use super::{
    Cgroups, Group, TotalLimits, folders, hand_controllers_down, lasting::Places, open_dir,
};

impl Cgroups {
    /// Makes the cgroup of a slot below that of its tenant, which is made if it is missing.
    pub fn make_slot(&self, tenant: u64, slot: u64, max_processes: u32) -> Result<Group, Errno> {
        let tenant = self.make_tenant(tenant)?;
        self.make(&format!("{tenant}/s{slot}"), max_processes)
    }

    /// Makes the cgroup of a tenant if it is missing, and returns its name.
    pub(super) fn make_tenant(&self, tenant: u64) -> Result<String, Errno> {
        let name = tenant_name(tenant);
        let limits = self.total.map(TotalLimits::of_one_tenant);
        for tree in &self.trees {
            match mkdirat(&tree.dir, name.as_str(), Mode::from_raw_mode(0o755)) {
                Err(Errno::EXIST) => {}
                made => {
                    made?;
                    let dir = open_dir(&tree.dir, &name)?;
                    hand_controllers_down(&dir, &tree.role)?;
                    limits.map_or(Ok(()), |limits| tree.role.limit_total(&dir, limits))?;
                }
            }
        }
        Ok(name)
    }

    /// Says where the cgroups of a tenant are.
    pub fn places_of(&self, tenant: u64) -> Places {
        self.places_below(&tenant_name(tenant))
    }

    /// Says where the cgroups of each tenant are that has any.
    pub fn places_of_all(&self) -> Vec<Places> {
        let names = self.trees.iter().flat_map(|tree| folders(&tree.dir));
        let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
        names.retain(|name| is_tenant(name));
        names.sort_unstable();
        names.dedup();
        names.iter().map(|name| self.places_below(name)).collect()
    }
}

fn tenant_name(tenant: u64) -> String {
    format!("t{tenant:x}")
}

/// Whether a cgroup with this name is that of a tenant.
pub(super) fn is_tenant(name: &str) -> bool {
    name.strip_prefix('t').is_some_and(|number| u64::from_str_radix(number, 16).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_tenant_is_told_from_those_of_sandboxes_and_slots() {
        assert!(is_tenant(&tenant_name(0)) && is_tenant(&tenant_name(u64::MAX)));
        for other in ["sb_abc", "sb_abc.init", "s12", "t", "txyz", "ringfence-sandboxes-1-2"] {
            assert!(!is_tenant(other), "{other}");
        }
    }
}
