#!/bin/sh
# Run once by the image of PostgreSQL: a role without privileges, and a database that it owns.
set -eu
psql --set ON_ERROR_STOP=1 --set password="$ROLE_PASSWORD" --username "$POSTGRES_USER" <<'SQL'
CREATE ROLE postrider LOGIN PASSWORD :'password';
CREATE DATABASE postrider OWNER postrider;
SQL
