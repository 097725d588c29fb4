// Sends a body that is refused, again and again, and prints how many answers could not be read.
import { readFileSync } from "node:fs";

const task = JSON.parse(readFileSync(0, "utf8"));
const body = Buffer.from(task.body.padEnd(task.bytes));
let cut = 0;
for (let n = 0; n < task.count; n += 1) {
  try {
    const answer = await fetch(task.url, { method: "POST", headers: task.headers, body });
    const problem = await answer.json();
    if (answer.status !== task.status || problem.status !== task.status) cut += 1;
  } catch {
    cut += 1;
  }
}
console.log(cut);
