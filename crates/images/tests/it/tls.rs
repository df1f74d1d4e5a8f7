//! Registries by TLS: whose certificates are believed, and where a safe connection may lead.

use std::{collections::BTreeMap, path::Path, process::Command, sync::Arc};

use images::pull::{Certificates, RegistrySettings, Scheme, Settings};
use tokio_rustls::rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::{
    imaging::{Built, build},
    packing::file,
    pulling::Bench,
    server::{Asked, Fake, honest, reply},
    tree::chain,
};

fn openssl(folder: &Path, arguments: &[&str]) {
    const REQUEST: [&str; 8] = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
    ];
    let mut command = Command::new("openssl");
    let output =
        command.args(REQUEST).arg("2").args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Makes an authority and a certificate of this machine.
fn certified(folder: &Path) -> Arc<ServerConfig> {
    openssl(folder, &["-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"]);
    let own = ["-subj", "/CN=registry", "-keyout", "own.key", "-out", "own.pem"];
    let by = ["-CA", "ca.pem", "-CAkey", "ca.key"];
    let with = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"];
    openssl(folder, &[&own[..], &by, &with].concat());
    let chain = CertificateDer::pem_file_iter(folder.join("own.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("own.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    Arc::new(config)
}

fn small() -> Built {
    build(&[vec![file("a", vec![b'a'; 300_000])]])
}

fn bench(server: &Fake, authorities: &Path) -> Bench {
    let own = RegistrySettings { scheme: Scheme::Https, ..RegistrySettings::default() };
    let registries = BTreeMap::from([(server.address.to_string(), own)]);
    let certificates = Certificates::File(authorities.to_owned());
    Bench::with(Settings { registries, certificates, ..Settings::default() })
}

#[tokio::test]
async fn a_registry_is_believed_if_an_authority_of_the_operator_knows_it() {
    let folder = tempfile::tempdir().unwrap();
    let tls = certified(folder.path());
    let built = small();
    let server = Fake::start_with(Some(tls), move |asked: &Asked| honest(&built, asked));
    let name = format!("{}/a", server.address);
    bench(&server, &folder.path().join("ca.pem")).pull(&name).await.unwrap();

    // Another authority of the same name, and no authority at all.
    let other = tempfile::tempdir().unwrap();
    certified(other.path());
    let error = bench(&server, &other.path().join("ca.pem")).pull(&name).await.unwrap_err();
    assert!(
        chain(&error)
            .starts_with(&format!("cannot reach {}: invalid peer certificate", server.address)),
        "{}",
        chain(&error)
    );
    let missing = other.path().join("missing");
    let error = bench(&server, &missing).pull(&name).await.unwrap_err();
    let expected = format!("no certificate authorities can be read from {}", missing.display());
    assert_eq!(chain(&error), expected);
}

#[tokio::test]
async fn a_safe_registry_cannot_lead_to_an_unsafe_place() {
    let folder = tempfile::tempdir().unwrap();
    let tls = certified(folder.path());
    let built = small();
    let unsafe_place = Fake::start({
        let built = built.clone();
        move |asked| honest(&built, asked)
    });
    let place = unsafe_place.address;
    let lead = move |asked: &Asked| {
        if asked.path.contains("/blobs/") {
            return reply("307 Moved", &format!("Location: http://{place}{}\r\n", asked.path), b"");
        }
        honest(&built, asked)
    };
    let server = Fake::start_with(Some(tls.clone()), lead);
    let authorities = folder.path().join("ca.pem");
    let error =
        bench(&server, &authorities).pull(&format!("{}/a", server.address)).await.unwrap_err();
    let downgrade =
        |server: &Fake| format!("{} leads from a safe connection to an unsafe one", server.address);
    assert_eq!(chain(&error), downgrade(&server));

    let realm = format!("WWW-Authenticate: Bearer realm=\"http://{place}/token\"\r\n");
    let server = Fake::start_with(Some(tls), move |_| reply("401 Unauthorized", &realm, b""));
    let error =
        bench(&server, &authorities).pull(&format!("{}/a", server.address)).await.unwrap_err();
    assert_eq!(chain(&error), downgrade(&server));
    assert_eq!(unsafe_place.asked().len(), 0);
}
