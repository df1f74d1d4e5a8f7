//! What must not be deleted, because somebody is about to use it.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Digest, Image, InUse};

/// Which images are held.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins(Arc<Mutex<BTreeMap<Digest, Held>>>);

#[derive(Debug)]
struct Held {
    by: usize,
    layers: Vec<Digest>,
}

/// An image that is kept until this is dropped. Whoever makes a sandbox holds it until the sandbox
/// is among those that are in use.
#[derive(Debug)]
pub struct Pinned {
    image: Arc<Image>,
    pins: Pins,
}

impl Pins {
    pub(super) fn pin(&self, image: Image) -> Pinned {
        self.hold(&image);
        Pinned { image: Arc::new(image), pins: self.clone() }
    }

    pub(super) fn holds(&self, image: Digest) -> bool {
        self.held().contains_key(&image)
    }

    pub(super) fn add_to(&self, in_use: &mut InUse) {
        for (image, held) in self.held().iter() {
            in_use.images.insert(*image);
            in_use.layers.extend(&held.layers);
        }
    }

    fn hold(&self, image: &Image) {
        let new = || Held { by: 0, layers: image.layers.clone() };
        self.held().entry(image.id).or_insert_with(new).by += 1;
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<Digest, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Pinned {
    type Target = Image;

    fn deref(&self) -> &Image {
        &self.image
    }
}

impl Clone for Pinned {
    fn clone(&self) -> Self {
        self.pins.hold(&self.image);
        Self { image: self.image.clone(), pins: self.pins.clone() }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut held = self.pins.held();
        let Some(one) = held.get_mut(&self.image.id) else { return };
        one.by -= 1;
        if one.by == 0 {
            held.remove(&self.image.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_held_until_the_last_lets_go() {
        let image = Image {
            name: "a".into(),
            id: Digest::of(b"a"),
            manifest: None,
            layers: vec![Digest::of(b"layer")],
            run: super::super::Run::default(),
            size: 0,
        };
        let pins = Pins::default();
        let one = pins.pin(image.clone());
        let other = one.clone();
        drop(one);
        let mut in_use = InUse::default();
        pins.add_to(&mut in_use);
        assert!(pins.holds(image.id) && in_use.layers.contains(&Digest::of(b"layer")));
        drop(other);
        assert!(!pins.holds(image.id));
    }
}
