-- Ends the transaction with SQLSTATE PR001 where a subscription of these tenants changed after that
-- version of the configuration, or where changes as old as that version are pruned already. Nodes of
-- the version before this one do not call it, and nothing that they use has changed.
CREATE FUNCTION postrider.refuse_stale_match(tenants text[], as_of bigint) RETURNS void
    LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM postrider.changes
               WHERE version > as_of AND kind = 0 AND tenant = ANY (tenants))
       OR (SELECT pruned FROM postrider.changed) > as_of THEN
        RAISE EXCEPTION 'subscriptions changed since matching' USING ERRCODE = 'PR001';
    END IF;
END
$$;
