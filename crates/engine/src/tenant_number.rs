//! The number by which the spawner knows a tenant. It names control groups, which outlive the server, so it is the same in
//! every version.

use sha2::{Digest as _, Sha256};

/// Returns a number for a tenant. Two tenants with the same one would share one share of the processors.
pub(crate) fn tenant_number(tenant: &str) -> u64 {
    let digest = Sha256::digest(tenant);
    digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_tenant_is_the_same_in_every_version() {
        assert_eq!(tenant_number("default"), 0x37a8_eec1_ce19_687d);
        assert_ne!(tenant_number("default"), tenant_number("other"));
    }
}
