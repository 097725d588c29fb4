/** Cuts a text stream of server-sent events into events. Comments are left out. */
export function sseParser(onEvent: (name: string, data: string) => void) {
  let rest = '';
  return (chunk: string) => {
    rest += chunk;
    let start = 0;
    for (let end = rest.indexOf('\n\n', start); end >= 0; end = rest.indexOf('\n\n', start)) {
      let name = 'message';
      let data = '';
      for (const line of rest.slice(start, end).split('\n')) {
        if (line.startsWith('event:')) name = line.slice(6).trim();
        else if (line.startsWith('data:')) data += (data ? '\n' : '') + line.slice(5).replace(/^ /, '');
      }
      if (data) onEvent(name, data);
      start = end + 2;
    }
    rest = rest.slice(start);
  };
}
