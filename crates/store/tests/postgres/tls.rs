//! TLS to the database.

use postrider_store::postgres::PostgresStore;
use postrider_store::{StoreError, Upkeep};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::nodes::options;
use crate::server::Server;

/// A root certificate, and a certificate for 127.0.0.1 that it signed, with its key.
fn certificates() -> (String, String, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let leaf = params.signed_by(&key, &root).unwrap();
    (root.pem(), leaf.pem(), key.serialize_pem())
}

#[tokio::test]
async fn server_certificate_is_verified_as_the_url_asks() {
    let (root, certificate, key) = certificates();
    let (stranger, _, _) = certificates();
    let files = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (root, stranger) = (write("root.pem", &root), write("stranger.pem", &stranger));
    let server = Server::start_with_tls(&certificate, &key);
    server.database("encrypted");
    let url = |rest: &str| format!("{}?{rest}", server.url("encrypted"));
    let verified = format!("sslmode=verify-full&sslrootcert={root}");
    let cases = [("sslmode=disable", "f"), ("sslmode=require", "t"), (verified.as_str(), "t")];
    for (rest, is_encrypted) in cases {
        let store = PostgresStore::connect(&url(rest), options("a")).await.unwrap();
        store.check().await.unwrap();
        let sql = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                   WHERE usename = 'postrider'";
        assert_eq!(server.sql("encrypted", sql), is_encrypted, "{rest}");
        store.close().await.unwrap();
        drop(store);
        server.wait_until_nobody_is_there("postrider").await;
    }
    let wrong =
        [format!("sslmode=verify-full&sslrootcert={stranger}"), "sslmode=verify-full".to_owned()];
    for rest in wrong {
        let refused = PostgresStore::connect(&url(&rest), options("a")).await.err();
        assert!(matches!(refused, Some(StoreError::Unavailable(_))), "{rest}: {refused:?}");
    }
    println!("TLS: 2 ways in encrypted, 2 servers that could not prove themselves refused");
}
