import express from "express";
import { verify } from "@postrider/client/verify";

/** Express middleware: answers 401 unless one of the secrets has signed the raw body. */
export function postrider(...secrets: string[]): express.RequestHandler[] {
  const check: express.RequestHandler = (req, res, next) => {
    verify(req.body as Uint8Array, req.headers, secrets).then(
      () => next(),
      () => res.status(401).end(),
    );
  };
  return [express.raw({ type: () => true, limit: "2mb" }), check];
}
