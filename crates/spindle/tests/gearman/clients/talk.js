// A worker and a client over gearmanode. See main.rs for what they do and print.

const gearmanode = require('gearmanode');
const [role, host, port, prefix, own] = process.argv.slice(2);
const server = {host, port: Number(port)};
console.log('version: gearmanode ' + require('gearmanode/package.json').version);

function work() {
  const worker = gearmanode.worker(server);
  worker.addFunction(prefix + '-reverse', (job) => {
    job.workComplete(job.payload.toString().split('').reverse().join(''));
  });
  worker.addFunction(prefix + '-steps', (job) => {
    job.reportStatus(1, 2);
    job.sendWorkData('part');
    job.workComplete('end');
  });
  worker.addFunction(prefix + '-boom', (job) => job.reportException('boom'));
  console.log('ready');
}

// Resolves with what a job heard, when it has ended.
function ended(job) {
  const heard = [];
  return new Promise((resolve) => {
    job.on('status', (it) => heard.push(it.percent_done_num + '/' + it.percent_done_den));
    job.on('workData', (data) => heard.push(data.toString()));
    job.on('complete', () => resolve([...heard, job.response.toString()].join(' ')));
    job.on('exception', (text) => resolve(text));
    job.on('failed', () => resolve('failed'));
  });
}

function created(job) {
  return new Promise((resolve) => job.on('created', () => resolve(job.handle)));
}

function status(job) {
  return new Promise((resolve) => {
    job.once('status', resolve);
    job.getStatus();
  });
}

async function ask() {
  const client = gearmanode.client(server);
  const submit = (name, options) => client.submitJob(prefix + '-' + name, 'hello', options);
  await new Promise((resolve) => {
    client.jobServers[0].once('option', resolve);
    client.jobServers[0].setOption('exceptions');
  });
  console.log('foreground: ' + await ended(submit('reverse')));

  const job = submit('reverse', {background: true});
  await created(job);
  let known = true;
  for (let tries = 0; known && tries < 1000; tries++) {
    known = (await status(job)).known;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  console.log('background: ' + (known ? 'not done' : 'done'));

  console.log('steps: ' + await ended(submit('steps')));
  console.log('exception: ' + await ended(submit('boom')));

  const add = (payload, options) =>
    created(client.submitJob(own, payload, {background: true, ...options}));
  await add('low', {priority: 'LOW'});
  await add('normal', {});
  await add('high', {priority: 'HIGH'});
  console.log('priorities: sent');
  const handles = [await add('first', {unique: 'u'}), await add('second', {unique: 'u'})];
  console.log('unique: ' + (handles[0] === handles[1] ? 'one' : 'two'));
  client.close();
}

if (role === 'worker') {
  work();
} else {
  ask();
}
