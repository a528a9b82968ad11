// The connection to the server: one WebSocket, on which the page says what it shows.

const MAX_PAUSE = 5000;
const FORBIDDEN = 4403;

export class Link {
  /**
   * Call `onframe(header, numbers)` with every frame, `onstate(open)` on changes, `onsignedout(answer)`
   * when the viewer must sign in again, and `onforbidden(reason)` when a view is refused.
   */
  constructor(onframe, onstate, onsignedout, onforbidden) {
    Object.assign(this, { onframe, onstate, onsignedout, onforbidden });
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
    const address = new URL("api/live", document.baseURI); // below a proxy's path, too
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.hash = "";
    this.socket = new WebSocket(address);
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
    this.socket.onclose = ({ code, reason }) => {
      if (code === FORBIDDEN) {
        this.query = null; // it would be refused again
        this.onforbidden(reason);
      }
      this.again();
    };
  }

  async again() {
    this.onstate(false);
    try {
      const answer = await fetch("api/about");
      if (answer.status === 401) {
        this.onsignedout(answer);
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
