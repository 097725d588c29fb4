//! Documents: written as expected or not at all, listed by name, counted, and forgotten when they are done.

use postrider_domain::ids::TenantId;
use postrider_store::{
    Document, DocumentCount, DocumentKind, DocumentOrder, Expected, PageRequest,
};

use super::Ground;
use super::ground::ALL;
use crate::samples::{acme, at, tenant, umbrella};

fn document(kind: DocumentKind, tenant: Option<TenantId>, name: &str, body: &str) -> Document {
    Document { kind, tenant, name: name.to_owned(), is_open: false, body: body.to_owned() }
}

async fn put(ground: &Ground, document: &Document) -> bool {
    ground.store.put_document(document, &Expected::Nothing).await.unwrap()
}

async fn document_comes_back_as_it_was_after_a_restart(mut ground: Ground) {
    for kind in DocumentKind::ALL {
        for (tenant, is_open) in [(None, true), (Some(acme()), false)] {
            let body = "{\"ä\": \"'; --\"}";
            let one = Document { is_open, ..document(kind, tenant, "task.updated", body) };
            assert!(put(&ground, &one).await);
            ground.reopen().await;
            let found = ground.store.document(kind, one.tenant.as_ref(), &one.name).await.unwrap();
            assert_eq!(found, Some(one));
        }
    }
    for (tenant, name) in [(umbrella(), "task.updated"), (acme(), "a\0")] {
        let found = ground.store.document(DocumentKind::EventType, Some(&tenant), name).await;
        assert_eq!(found.unwrap(), None);
    }
}

async fn document_is_written_only_over_what_is_expected(ground: Ground) {
    let kind = DocumentKind::EventType;
    let (first, second) =
        (document(kind, Some(acme()), "a", "1"), document(kind, Some(acme()), "a", "2"));
    let over = |body: &str| Expected::Body(body.to_owned());
    let store = &ground.store;
    assert!(!store.put_document(&second, &over("1")).await.unwrap(), "there is none");
    assert!(put(&ground, &first).await);
    assert!(put(&ground, &first).await, "a repeat has the same answer");
    assert!(!put(&ground, &second).await);
    assert!(!store.put_document(&second, &over("3")).await.unwrap());
    assert_eq!(store.document(kind, Some(&acme()), "a").await.unwrap(), Some(first));
    assert!(store.put_document(&second, &over("1")).await.unwrap());
    assert!(store.put_document(&second, &over("1")).await.unwrap(), "a repeat");
    assert_eq!(store.document(kind, Some(&acme()), "a").await.unwrap(), Some(second));
}

async fn two_who_change_a_document_at_the_same_time_do_not_overwrite_each_other(ground: Ground) {
    let kind = DocumentKind::Erasure;
    put(&ground, &document(kind, Some(acme()), "a", "0")).await;
    let expected = Expected::Body("0".to_owned());
    let (one, two) =
        (document(kind, Some(acme()), "a", "1"), document(kind, Some(acme()), "a", "2"));
    let (a, b) = tokio::join!(
        ground.store.put_document(&one, &expected),
        ground.store.put_document(&two, &expected)
    );
    assert_ne!(a.unwrap(), b.unwrap(), "exactly one of them");
}

async fn documents_are_listed_by_name_of_their_own_tenant_and_kind(ground: Ground) {
    let kind = DocumentKind::EventType;
    for name in ["b", "a-1", "c", "B"] {
        put(&ground, &document(kind, Some(acme()), name, "{}")).await;
    }
    put(&ground, &document(kind, None, "a", "{}")).await;
    put(&ground, &document(DocumentKind::Erasure, Some(acme()), "d", "{}")).await;
    let names = async |tenant: Option<TenantId>, order| {
        let (mut names, mut page) = (Vec::new(), PageRequest { limit: 2, cursor: None });
        loop {
            let found = ground.store.documents(kind, tenant.as_ref(), order, &page).await.unwrap();
            names.extend(found.items.into_iter().map(|one| one.name));
            page.cursor = found.next;
            if page.cursor.is_none() {
                return names;
            }
        }
    };
    let (up, down) = (DocumentOrder::Ascending, DocumentOrder::Descending);
    assert_eq!(names(Some(acme()), up).await, ["B", "a-1", "b", "c"]);
    assert_eq!(names(Some(acme()), down).await, ["c", "b", "a-1", "B"]);
    assert_eq!(names(None, up).await, ["a"]);
    assert!(names(Some(umbrella()), up).await.is_empty());
}

async fn large_documents_end_a_page_early(ground: Ground) {
    let kind = DocumentKind::EventType;
    for n in 0..30 {
        let one = document(kind, Some(acme()), &format!("t{n:02}"), &"x".repeat(200_000));
        put(&ground, &one).await;
    }
    let order = DocumentOrder::Ascending;
    let page = ground.store.documents(kind, Some(&acme()), order, &ALL).await.unwrap();
    assert!((10..30).contains(&page.items.len()), "{}", page.items.len());
    let rest = PageRequest { limit: ALL.limit, cursor: page.next };
    let rest = ground.store.documents(kind, Some(&acme()), order, &rest).await.unwrap();
    assert_eq!(page.items.len() + rest.items.len(), 30);
    assert_eq!(rest.next, None);
}

async fn documents_are_counted_and_removed(ground: Ground) {
    let (store, kind) = (&ground.store, DocumentKind::Erasure);
    for (name, is_open) in [("a", true), ("b", false), ("c", false), ("d", false)] {
        let one = Document { is_open, ..document(kind, Some(acme()), name, "12345") };
        put(&ground, &one).await;
    }
    let server = Document { is_open: true, ..document(kind, None, "a", "1") };
    put(&ground, &server).await;
    let counts = |count, open, bytes| DocumentCount { count, open, bytes };
    assert_eq!(store.count_documents(kind, Some(&acme())).await.unwrap(), counts(4, 1, 20));
    assert_eq!(store.count_documents(kind, None).await.unwrap(), counts(1, 1, 1));
    assert_eq!(store.count_all_documents(kind).await.unwrap(), counts(5, 2, 21));
    let open = store.open_documents(kind).await.unwrap();
    let open: Vec<_> = open.into_iter().map(|one| (one.tenant, one.name)).collect();
    assert_eq!(open, [(None, "a".to_owned()), (Some(acme()), "a".to_owned())]);
    assert_eq!(store.forget_documents(kind, &acme(), 1).await.unwrap(), 2);
    assert_eq!(store.count_documents(kind, Some(&acme())).await.unwrap(), counts(2, 1, 10));
    assert!(store.delete_document(kind, Some(&acme()), "d").await.unwrap());
    assert!(!store.delete_document(kind, Some(&acme()), "d").await.unwrap());
    assert!(!store.delete_document(kind, None, "d\0").await.unwrap());
    assert_eq!(store.count_documents(kind, Some(&acme())).await.unwrap().count, 1);
}

async fn deleted_tenant_loses_its_catalogue_and_keeps_its_erasures(ground: Ground) {
    ground.store.create_tenant(&tenant("acme", at(0))).await.unwrap();
    for kind in DocumentKind::ALL {
        put(&ground, &document(kind, Some(acme()), "a", "{}")).await;
        put(&ground, &document(kind, Some(umbrella()), "a", "{}")).await;
    }
    assert!(ground.store.delete_tenant(&acme()).await.unwrap());
    for (kind, left) in DocumentKind::ALL.into_iter().zip([false, false, true]) {
        let found = ground.store.document(kind, Some(&acme()), "a").await.unwrap();
        assert_eq!(found.is_some(), left, "{kind:?}");
        let others = ground.store.document(kind, Some(&umbrella()), "a").await.unwrap();
        assert!(others.is_some(), "{kind:?}");
    }
}

suite! { $ documents, conformance_documents:
    document_comes_back_as_it_was_after_a_restart,
    document_is_written_only_over_what_is_expected,
    two_who_change_a_document_at_the_same_time_do_not_overwrite_each_other,
    documents_are_listed_by_name_of_their_own_tenant_and_kind,
    large_documents_end_a_page_early,
    documents_are_counted_and_removed,
    deleted_tenant_loses_its_catalogue_and_keeps_its_erasures,
}
