import express from "express";
import { VerificationError, verify } from "@postrider/client/verify";

/** Express middleware: answers 401 unless one of the secrets has signed the raw body. */
export function postrider(...secrets: string[]): express.RequestHandler[] {
  const check: express.RequestHandler = (req, res, next) => {
    verify((req.body as Buffer | undefined) ?? "", req.headers, secrets).then(
      () => next(),
      (error) => (error instanceof VerificationError ? res.status(401).send(error.code) : next(error)),
    );
  };
  return [express.raw({ type: () => true, limit: "2mb" }), check];
}
