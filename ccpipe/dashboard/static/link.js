// The connection to the server: one WebSocket, on which the page says what it shows.

const MAX_PAUSE = 5000;

export class Link {
  /** Call `onframe(header, numbers)` with every frame, `onstate(open)` on changes. */
  constructor(onframe, onstate, ondenied) {
    Object.assign(this, { onframe, onstate, ondenied });
    this.query = null;
    this.pause = 250;
    this.connect();
  }

  /** Ask for another view. */
  ask(query) {
    this.query = query;
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(query));
  }

  connect() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/api/live`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => {
      this.pause = 250;
      this.onstate(true);
      if (this.query) this.socket.send(JSON.stringify(this.query));
    };
    this.socket.onmessage = (message) => {
      const { header, numbers } = read(message.data);
      if (this.query && header.view === this.query.view) this.onframe(header, numbers);
    };
    this.socket.onclose = () => this.again();
  }

  async again() {
    this.onstate(false);
    try {
      const answer = await fetch("/api/about");
      if (answer.status === 401) {
        this.ondenied();
        return;
      }
    } catch {
      // the server is away
    }
    setTimeout(() => this.connect(), this.pause);
    this.pause = Math.min(MAX_PAUSE, this.pause * 2);
  }
}

/** Read a frame: the length of its JSON, the JSON, 32-bit floats. */
export function read(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  return { header, numbers: new Float32Array(buffer, 4 + size) };
}
