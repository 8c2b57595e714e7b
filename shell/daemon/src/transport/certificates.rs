//! Certificates of a listener: read from files, exchanged while connections live on, and the user that a client's one names.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::config::{ClientCert, UsernameFrom};

/// The longest name of a certificate that a broker is told, in bytes; X.520 allows 64 characters.
const NAME_BYTES_MAX: usize = 256;

/// Where a listener's certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    /// Authorities that sign clients' certificates.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) client_cert: ClientCert,
}

/// Which file cannot be used, as the name of its key, and why.
pub(crate) type Unusable = (&'static str, String);

/// The certificates that new connections get.
#[derive(Debug)]
pub(crate) struct Certificates {
    files: Files,
    current: RwLock<Arc<ServerConfig>>,
}

impl Certificates {
    pub(crate) fn load(files: Files) -> Result<Self, Unusable> {
        let current = RwLock::new(server_config(&files)?);
        Ok(Self { files, current })
    }

    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again; the former content stays in use if they cannot be used. Connections keep the configuration with which they began.
    pub(crate) fn reload(&self) -> Result<(), Unusable> {
        let fresh = server_config(&self.files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }
}

fn server_config(files: &Files) -> Result<Arc<ServerConfig>, Unusable> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&files.cert).map_err(|what| ("cert_file", what))?;
    let key = private_key(&files.key).map_err(|what| ("key_file", what))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| ("cert_file", error.to_string()))?;
    let builder = match &files.ca {
        Some(path) if files.client_cert != ClientCert::None => {
            let wrong = |what: &dyn std::fmt::Display| ("ca_file", format!("{}: {what}", path.display()));
            let roots = roots(path).map_err(|what| ("ca_file", what))?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match files.client_cert {
                ClientCert::Optional => verifier.allow_unauthenticated(),
                ClientCert::None | ClientCert::Required => verifier,
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| wrong(&error))?)
        }
        _ => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(chain, key).map_err(|error| {
        let pair = format!("{} and {} do not go together: {error}", files.cert.display(), files.key.display());
        ("cert_file", pair)
    })?;
    Ok(Arc::new(config))
}

/// The private key in a file.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| format!("cannot read a private key from {}: {error}", path.display()))
}

/// The authorities in a file.
pub(super) fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(roots)
}

/// The certificates in a file, at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("cannot read certificates from {}: {error}", path.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?.collect();
    let found = found.map_err(|error| wrong(&error))?;
    if found.is_empty() { Err(wrong(&"the file holds none (PEM)")) } else { Ok(found) }
}

/// The user that a certificate names: its common name, or the first of its alternative names that is a host, an address of
/// mail or a URI. `None`: it names nobody in this way.
pub(super) fn user(certificate: &CertificateDer<'_>, from: UsernameFrom) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let subject = certificate.tbs_certificate();
    let name = match from {
        UsernameFrom::None => return None,
        UsernameFrom::Cn => subject.subject().common_name().ok()??.value().into_owned(),
        UsernameFrom::San => {
            let (_, names): (bool, SubjectAltName) = subject.get_extension().ok()??;
            names.0.iter().find_map(|name| {
                if let GeneralName::DnsName(text)
                | GeneralName::Rfc822Name(text)
                | GeneralName::UniformResourceIdentifier(text) = name
                {
                    Some(text.as_str().to_owned())
                } else {
                    None
                }
            })?
        }
    };
    Some(name).filter(|name| !name.is_empty())
}

/// The common name of a certificate, if it is one that another program can be told.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let name = user(certificate, UsernameFrom::Cn)?;
    (name.len() <= NAME_BYTES_MAX && !name.contains(char::is_control)).then_some(name)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    /// MQ-19
    #[test]
    fn a_certificate_names_its_user() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["sensor-7.site".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "sensor 7");
        let der = params.self_signed(&key).unwrap().der().clone();
        assert_eq!(user(&der, UsernameFrom::Cn).as_deref(), Some("sensor 7"));
        assert_eq!(user(&der, UsernameFrom::San).as_deref(), Some("sensor-7.site"));
        assert_eq!(user(&der, UsernameFrom::None), None);
        assert_eq!(common_name(&der).as_deref(), Some("sensor 7"));
        for name in ["a\nb".to_owned(), "x".repeat(NAME_BYTES_MAX + 1)] {
            params.distinguished_name.push(DnType::CommonName, name);
            assert_eq!(common_name(params.self_signed(&key).unwrap().der()), None);
        }
        let mut nobody = CertificateParams::new(Vec::new()).unwrap();
        nobody.distinguished_name = rcgen::DistinguishedName::new();
        let der = nobody.self_signed(&key).unwrap().der().clone();
        assert_eq!(user(&der, UsernameFrom::Cn), None);
        assert_eq!(user(&der, UsernameFrom::San), None);
    }
}
