//! What sandboxes are made from: the images that their specs name, brought here and kept.

use std::collections::BTreeSet;

use model::{
    image::{HOST, UsedImage, UsedImages},
    sandbox::Sandbox,
    spec::{SandboxSpec, Variables},
    transition::{Creation, Observation},
};

use super::{
    command,
    machine::{Machine, MachineError},
    paths,
};
use crate::images::{Digest, Found, Image, ImageError, Images, InUse, Listener, Pinned, Wanted};

/// The images of one sandbox. None of them is deleted while this is held.
#[derive(Debug, Default)]
pub(super) struct Materials {
    pub(super) used: UsedImages,
    pub(super) pins: Vec<Pinned>,
}

/// Refuses a sandbox of which the names of its images say that it could never be made.
/// The caller himself opens some of them.
pub(super) fn check(
    images: &Images,
    spec: &SandboxSpec,
    opened: &[(String, String)],
) -> Result<(), ImageError> {
    names(spec).into_iter().try_for_each(|name| {
        let Wanted { reference, .. } = name.parse()?;
        if opened.iter().any(|(other, _)| other == name) {
            return Ok(());
        }
        images.check(&reference)
    })
}

/// Brings every image of a sandbox here. The listener hears of one after the other.
pub(super) async fn gather(
    images: &Images,
    machine: &Machine,
    sandbox: &Sandbox,
    listener: &Listener,
) -> Result<Materials, ImageError> {
    let mut materials = Materials::default();
    for name in names(&sandbox.spec) {
        let mut wanted: Wanted = name.parse()?;
        if let Some(path) = paths::place_of(wanted.reference.clone()) {
            let opened = machine.open_granted(&sandbox.id, path).await;
            wanted.opened = opened.map_err(|error| unreadable(name, &error))?;
        }
        match images.get(&sandbox.tenant, wanted, listener).await? {
            // It is used where it is, by who can open it.
            Found::Host | Found::Directory { .. } => {}
            Found::Image(pinned) => {
                materials.used.insert(name.to_owned(), used(&pinned)?);
                materials.pins.push(pinned);
            }
        }
    }
    Ok(materials)
}

/// Names every image that has to be looked up.
pub(super) fn names(spec: &SandboxSpec) -> BTreeSet<&str> {
    let companions = spec.companions.iter().map(|companion| companion.image.as_str());
    companions.chain([spec.image.as_str()]).filter(|name| *name != HOST).collect()
}

/// What is seen when everything is here that a sandbox is made from.
pub(super) fn gathered(images: UsedImages) -> Observation {
    Observation::Preparing { step: "materialize".to_owned(), images }
}

/// Notes at once that everything is here that a new sandbox is made from, if that is no image.
pub(super) fn with_nothing_to_gather(creation: Creation) -> Creation {
    if names(&creation.sandbox().spec).is_empty() {
        let at = creation.sandbox().life.created_at;
        return creation.and(gathered(UsedImages::default()), at);
    }
    creation
}

fn unreadable(name: &str, error: &MachineError) -> ImageError {
    ImageError::Unreadable { image: name.to_owned(), message: error.to_string() }
}

/// Reads the variables of an image.
pub(super) fn variables(image: &str, env: &[String]) -> Result<Variables, ImageError> {
    if command::size_of(env) > command::MAX_IMAGE_ENV {
        let message = format!("its variables take more than {} bytes", command::MAX_IMAGE_ENV);
        return Err(ImageError::Unsupported { image: image.to_owned(), message });
    }
    let variable = |text: &String| {
        let (name, value) = text.split_once('=')?;
        let is_good = !name.is_empty() && !text.contains('\0');
        is_good.then(|| (name.to_owned(), value.to_owned()))
    };
    Ok(env.iter().filter_map(variable).collect())
}

fn used(image: &Image) -> Result<UsedImage, ImageError> {
    let run = &image.run;
    Ok(UsedImage {
        id: image.id.to_string(),
        layers: image.layer_names(),
        env: variables(&image.name, &run.env)?,
        command: run.entrypoint.iter().chain(&run.cmd).cloned().collect(),
        entrypoint: run.entrypoint.clone(),
        user: run.user.clone(),
        working_directory: run.working_dir.clone(),
    })
}

/// Names the images and layers that these sandboxes are made from.
pub(super) fn in_use(sandboxes: &[Sandbox]) -> InUse {
    let used = || sandboxes.iter().flat_map(|sandbox| sandbox.life.images.values());
    let layer = |name: &String| format!("sha256:{name}").parse::<Digest>().ok();
    InUse {
        images: used().filter_map(|image| image.id.parse().ok()).collect(),
        layers: used().flat_map(|image| &image.layers).filter_map(layer).collect(),
    }
}

#[cfg(test)]
mod tests {
    use model::spec::Companion;

    use super::*;

    #[test]
    fn each_image_is_looked_up_once_and_the_machine_itself_never() {
        let companion = |image: &str| Companion { image: image.to_owned(), ..Companion::default() };
        let spec = SandboxSpec {
            image: "python:3.12".to_owned(),
            companions: vec![companion("redis"), companion("host"), companion("python:3.12")],
            ..SandboxSpec::default()
        };
        assert_eq!(names(&spec), BTreeSet::from(["python:3.12", "redis"]));
    }

    #[test]
    fn variables_without_a_name_are_no_variables() {
        let digest = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
        let image = |env: &[&str]| Image {
            name: "image".to_owned(),
            id: digest,
            manifest: None,
            layers: vec![digest],
            run: crate::images::Run {
                env: env.iter().map(ToString::to_string).collect(),
                entrypoint: vec!["/run".to_owned()],
                cmd: vec!["it".to_owned()],
                ..Default::default()
            },
            size: 0,
        };
        let used_image = used(&image(&["A=1=2", "=x", "bare", "B="])).unwrap();
        let expected = [("A".to_owned(), "1=2".to_owned()), ("B".to_owned(), String::new())];
        assert_eq!(used_image.env, expected.into());
        assert_eq!(used_image.command, ["/run", "it"]);
        assert_eq!(used_image.layers, ["0".repeat(64)]);
        let large = format!("A={}", "x".repeat(command::MAX_IMAGE_ENV));
        assert!(matches!(used(&image(&[&large])), Err(ImageError::Unsupported { .. })));
    }
}
