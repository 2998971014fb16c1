// The connections of a client to the server: a WebSocket, or a call by WebRTC, whose sound travels beside its messages.
//
// Each has open(), send(message) and close(), and calls message(data) and, once, closed(reason); the reason is empty where no
// fault ended it.

// Where the server's paths begin: the page is at PREFIX/playground.
const BASE = new URL('.', location.href);
const CALL_OPENS_MS = 10_000;

// The URL of a path of the server, by HTTP or as a WebSocket.
export function urlOf(path, query, scheme = 'http') {
  const url = new URL(path.replace(/^\//, ''), BASE);
  url.protocol = location.protocol === 'https:' ? `${scheme}s:` : `${scheme}:`;
  for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
  return url;
}

// The key travels in a subprotocol, so that it is never part of a URL.
export const subprotocols = (key, more = []) => ['voxbridge', ...(key ? [`voxbridge.key.${key}`] : []), ...more];

export const opened = (socket, what) => new Promise((resolve, reject) => {
  socket.onopen = resolve;
  socket.onerror = () => reject(new Error(`The server does not accept ${what}.`));
});

export class SocketConnection {
  // `name` is the name by which the page watches the session.
  constructor({ path, query, key, name }, on) {
    this.socket = new WebSocket(urlOf(path, query, 'ws'), subprotocols(key, [`voxbridge.watch.${name}`]));
    this.socket.binaryType = 'arraybuffer';
    this.socket.onmessage = ({ data }) => on.message(data);
    this.socket.onclose = ({ code, reason }) => on.closed(code === 1000 || code === 1005 ? '' : `${reason || 'The connection was closed'} (${code})`);
  }

  async open() {
    await opened(this.socket, 'the session');
  }

  send(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(message);
  }

  close() {
    this.socket.close(1000);
  }
}

export class CallConnection {
  constructor({ path, query, key, name }, on) {
    this.request = {
      url: urlOf(`${path}/calls`, query),
      headers: { 'content-type': 'application/sdp', 'voxbridge-watch': name, ...(key && { authorization: `Bearer ${key}` }) },
    };
    this.on = on;
    this.peer = new RTCPeerConnection();
    this.microphone = this.peer.addTransceiver('audio', { direction: 'sendrecv' }).sender;
    this.speaker = Object.assign(new Audio(), { autoplay: true });
    this.peer.ontrack = ({ track }) => { this.speaker.srcObject = new MediaStream([track]); };
    this.peer.onconnectionstatechange = () => {
      if (this.peer.connectionState === 'failed') this.end('The connection of the call was lost');
    };
    this.channel = this.peer.createDataChannel('oai-events');
    this.channel.onmessage = ({ data }) => on.message(data);
  }

  async open() {
    try {
      await this.peer.setLocalDescription();
      const answer = await fetch(this.request.url, { method: 'POST', headers: this.request.headers, body: this.peer.localDescription.sdp });
      const text = await answer.text();
      if (!answer.ok) throw new Error(reasonIn(text) ?? `The server answered ${answer.status}.`);
      await this.peer.setRemoteDescription({ type: 'answer', sdp: text });
      await this.connected();
      this.channel.onclose = () => this.end('');
    } catch (error) {
      this.isOver = true;
      this.peer.close();
      throw error;
    }
  }

  connected() {
    return new Promise((resolve, reject) => {
      this.channel.onopen = resolve;
      this.channel.onclose = () => reject(new Error('The server ended the call before it began.'));
      setTimeout(() => reject(new Error('No packet of the call reaches the server. It must be reachable by UDP at the address in [webrtc].')), CALL_OPENS_MS);
    });
  }

  sendTrack(track) {
    return this.microphone.replaceTrack(track);
  }

  send(message) {
    if (this.channel.readyState === 'open') this.channel.send(message);
  }

  close() {
    this.end('');
  }

  end(reason) {
    if (this.isOver) return;
    this.isOver = true;
    this.speaker.srcObject = null;
    this.peer.close();
    this.on.closed(reason);
  }
}

// The message of an error in JSON.
function reasonIn(text) {
  try {
    return JSON.parse(text).error?.message;
  } catch {
    return undefined;
  }
}
