const api = `${process.env.SPINDLE_URL ?? "http://127.0.0.1:7420"}/api/v1`;

async function post(path, body) {
  const response = await fetch(`${api}/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!response.ok) {
    throw Object.assign(new Error(await response.text()), { status: response.status });
  }
  return response.status === 204 ? null : response.json();
}

async function send(mail) {
  if (!mail.to.includes("@")) throw new Error(`no address: ${mail.to}`);
  return { sent_to: mail.to };
}

async function work() {
  let job;
  // Ends after a second without a job; a service would ask again, with wait_s up to 300.
  while ((job = await post("lease", { queues: ["mail"], wait_s: 1 }))) {
    let outcome = "complete";
    let report;
    try {
      report = { result: await send(job.payload) };
    } catch (error) {
      outcome = "fail"; // retried after a backoff
      report = { message: [...error.message].slice(0, 4096).join("") };
    }
    try {
      await post(`leases/${job.lease_token}/${outcome}`, report);
    } catch (error) {
      // The lease has ended: the job is no longer ours.
      if (error.status !== 409 && error.status !== 410) throw error;
    }
  }
}

const [command, address] = process.argv.slice(2);
if (command === "submit" && address) {
  const job = await post("jobs", { queue: "mail", payload: { to: address } });
  console.log(job.id);
} else if (command === "work") {
  await work();
} else {
  console.error("usage: mail.mjs submit ADDRESS | mail.mjs work");
  process.exitCode = 2;
}
